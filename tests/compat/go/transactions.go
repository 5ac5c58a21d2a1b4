package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions are of the one transactional producer that this process may have.
type transactions struct {
	bootstrap string
	producer  *kgo.Client
}

func (client *transactions) addTo(verbs map[string]verb) {
	verbs["open_transactions"] = client.open
	verbs["begin"] = func(arguments) (any, error) { return nil, client.producer.BeginTransaction() }
	verbs["send"] = func(args arguments) (any, error) { return nil, send(client.producer, args) }
	verbs["send_offsets"] = func(arguments) (any, error) {
		return nil, unsupported("it puts offsets into a transaction only where the consumer is also the producer")
	}
	verbs["end"] = client.end
}

func (client *transactions) open(args arguments) (any, error) {
	var err error
	client.producer, err = kgo.NewClient(connecting(
		client.bootstrap,
		kgo.TransactionalID(args.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _, err = client.producer.ProducerID(ctx)
	return nil, err
}

func (client *transactions) end(args arguments) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := client.producer.Flush(ctx); err != nil {
		return nil, err
	}
	return nil, client.producer.EndTransaction(ctx, kgo.TransactionEndTry(args.Commit))
}
