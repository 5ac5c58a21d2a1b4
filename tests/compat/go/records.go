package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 20 * time.Second

// records are produced, and read without a group.
type records struct {
	bootstrap string
}

func (client *records) addTo(verbs map[string]verb) {
	verbs["produce"] = client.produce
	verbs["produce_idempotent"] = func(args arguments) (any, error) { return nil, client.send(args) }
	verbs["read"] = client.read
}

func (client *records) produce(args arguments) (any, error) {
	codecs := map[string]kgo.CompressionCodec{
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	codec, compressed := codecs[args.Codec]
	if !compressed {
		codec = kgo.NoCompression()
	}
	options := []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(codec)}
	if args.MaxBytes != nil {
		options = append(options, kgo.ProducerBatchMaxBytes(*args.MaxBytes))
	}
	return nil, client.send(args, options...)
}

func (client *records) send(args arguments, options ...kgo.Opt) error {
	producer, err := kgo.NewClient(append(options, producing(client.bootstrap, args.Records)...)...)
	if err != nil {
		return err
	}
	defer producer.Close()
	return send(producer, args)
}

// producing are the options of a producer of these records. Where they name their partitions, its partitioner does as they say.
func producing(bootstrap string, sent []outgoing) []kgo.Opt {
	options := connecting(bootstrap, kgo.ProducerLinger(20*time.Millisecond))
	if len(sent) > 0 && sent[0].partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return options
}

func send(producer *kgo.Client, args arguments) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var sent []*kgo.Record
	for _, each := range args.Records {
		sent = append(sent, each.to(args.Topic))
	}
	return producer.ProduceSync(ctx, sent...).FirstErr()
}

func (client *records) read(args arguments) (any, error) {
	isolation := kgo.ReadUncommitted()
	if args.CommittedOnly {
		isolation = kgo.ReadCommitted()
	}
	consumer, err := kgo.NewClient(connecting(
		client.bootstrap,
		kgo.FetchIsolationLevel(isolation),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{args.Topic: {args.Partition: args.Start.offset()}}),
	)...)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	return poll(consumer, args.Count, patience)
}

// poll gives up to so many records, and after a while what there is.
func poll(consumer *kgo.Client, count int, wait time.Duration) ([]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	found := []any{}
	for len(found) < count && ctx.Err() == nil {
		fetches := consumer.PollRecords(ctx, count-len(found))
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, incoming(record)) })
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return found, failed.Err
			}
		}
		consumer.AllowRebalance()
	}
	return found, nil
}
