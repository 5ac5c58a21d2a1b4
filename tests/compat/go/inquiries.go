package main

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// inquiries are what an operator may want to know about partitions, their producers and their transactions.
type inquiries struct {
	admin *kadm.Client
}

func newInquiries(bootstrap string) *inquiries {
	return &inquiries{newAdministration(bootstrap).admin}
}

func (client *inquiries) addTo(verbs map[string]verb) {
	verbs["offset_for_time"] = client.offsetForTime
	verbs["newest"] = client.newest
	verbs["log_dir_sizes"] = client.logDirSizes
	verbs["producers"] = client.producers
	verbs["transactions"] = client.transactions
	verbs["describe_transaction"] = client.describeTransaction
}

func (client *inquiries) offsetForTime(args arguments) (any, error) {
	found, err := client.admin.ListOffsetsAfterMilli(context.Background(), args.TimestampMs, args.Topic)
	offset := found[args.Topic][args.Partition]
	if offset.Timestamp < 0 {
		// It puts the end in the place of nothing.
		return missing, first(err, offset.Err)
	}
	return offset.Offset, first(err, offset.Err)
}

func (client *inquiries) newest(args arguments) (any, error) {
	found, err := client.admin.ListMaxTimestampOffsets(context.Background(), args.Topic)
	return found[args.Topic][args.Partition].Offset, err
}

func (client *inquiries) logDirSizes(args arguments) (any, error) {
	found, err := client.admin.DescribeAllLogDirs(context.Background(), nil)
	sizes := [][2]int64{}
	found.Each(func(folder kadm.DescribedLogDir) {
		for _, partition := range folder.Topics[args.Topic] {
			sizes = append(sizes, [2]int64{int64(partition.Partition), partition.Size})
		}
	})
	return sizes, err
}

func (client *inquiries) producers(args arguments) (any, error) {
	wanted := kadm.TopicsSet{}
	wanted.Add(args.Topic, args.Partition)
	found, err := client.admin.DescribeProducers(context.Background(), wanted)
	states := [][2]int64{}
	found.EachProducer(func(each kadm.DescribedProducer) {
		states = append(states, [2]int64{each.ProducerID, each.CurrentTxnStartOffset})
	})
	return states, err
}

func (client *inquiries) transactions(arguments) (any, error) {
	found, err := client.admin.ListTransactions(context.Background(), nil, nil)
	states := [][2]string{}
	for _, each := range found.Sorted() {
		states = append(states, [2]string{each.TxnID, strings.ToLower(each.State)})
	}
	return states, err
}

func (client *inquiries) describeTransaction(args arguments) (any, error) {
	found, err := client.admin.DescribeTransactions(context.Background(), args.TransactionalID)
	transaction := found[args.TransactionalID]
	partitions := [][]any{}
	for topic, numbers := range transaction.Topics {
		for number := range numbers {
			partitions = append(partitions, []any{topic, number})
		}
	}
	return []any{strings.ToLower(transaction.State), partitions}, first(err, transaction.Err)
}
