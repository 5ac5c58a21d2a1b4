package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// administration is of topics, configs and groups.
type administration struct {
	admin *kadm.Client
}

func newAdministration(bootstrap string) *administration {
	// It answers from memory what it was told so shortly before.
	client, err := kgo.NewClient(connecting(bootstrap, kgo.MetadataMinAge(10*time.Millisecond))...)
	if err != nil {
		panic(err)
	}
	return &administration{kadm.NewClient(client)}
}

func (client *administration) addTo(verbs map[string]verb) {
	ctx := context.Background()
	admin := client.admin
	verbs["topics"] = func(arguments) (any, error) {
		found, err := admin.ListTopics(ctx)
		return found.Names(), err
	}
	verbs["partitions"] = func(args arguments) (any, error) {
		found, err := admin.ListTopics(ctx, args.Topic)
		return len(found[args.Topic].Partitions), err
	}
	verbs["create_topic"] = client.createTopic
	verbs["delete_topic"] = func(args arguments) (any, error) {
		_, err := admin.DeleteTopic(ctx, args.Topic)
		return nil, err
	}
	verbs["add_partitions"] = func(args arguments) (any, error) {
		changed, err := admin.UpdatePartitions(ctx, args.Total, args.Topic)
		return nil, first(err, changed.Error())
	}
	verbs["topic_configs"] = client.topicConfigs
	verbs["set_topic_config"] = func(args arguments) (any, error) {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: args.Key, Value: &args.Value}
		changed, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, args.Topic)
		for _, each := range changed {
			err = first(err, each.Err)
		}
		return nil, err
	}
	verbs["delete_records"] = func(args arguments) (any, error) {
		before := kadm.Offsets{}
		before.AddOffset(args.Topic, args.Partition, args.Before, -1)
		deleted, err := admin.DeleteRecords(ctx, before)
		return nil, first(err, deleted.Error())
	}
	verbs["bounds"] = client.bounds
	verbs["brokers"] = func(arguments) (any, error) {
		found, err := admin.BrokerMetadata(ctx)
		return len(found.Brokers), err
	}
	verbs["groups"] = func(arguments) (any, error) {
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	}
	verbs["describe_group"] = func(args arguments) (any, error) {
		found, err := admin.DescribeGroups(ctx, args.Group)
		group := found[args.Group]
		return []any{strings.ToLower(group.State), len(group.Members)}, first(err, group.Err)
	}
	verbs["delete_group"] = func(args arguments) (any, error) {
		_, err := admin.DeleteGroup(ctx, args.Group)
		return nil, err
	}
	verbs["group_offsets"] = client.groupOffsets
	verbs["set_group_offsets"] = client.setGroupOffsets
	verbs["delete_group_offsets"] = client.deleteGroupOffsets
}

func (client *administration) createTopic(args arguments) (any, error) {
	var partitions int32
	if err := json.Unmarshal(args.Partitions, &partitions); err != nil {
		return nil, err
	}
	configs := map[string]*string{}
	for name, value := range args.Configs {
		configs[name] = &value
	}
	_, err := client.admin.CreateTopic(context.Background(), partitions, 1, configs, args.Topic)
	return nil, err
}

func (client *administration) topicConfigs(args arguments) (any, error) {
	found, err := client.admin.DescribeTopicConfigs(context.Background(), args.Topic)
	configs := map[string]*string{}
	for _, resource := range found {
		err = first(err, resource.Err)
		for _, config := range resource.Configs {
			configs[config.Key] = config.Value
		}
	}
	return configs, err
}

func (client *administration) bounds(args arguments) (any, error) {
	earliest, err := client.admin.ListStartOffsets(context.Background(), args.Topic)
	if err != nil {
		return nil, err
	}
	latest, err := client.admin.ListEndOffsets(context.Background(), args.Topic)
	return []int64{earliest[args.Topic][args.Partition].Offset, latest[args.Topic][args.Partition].Offset}, err
}

func (client *administration) groupOffsets(args arguments) (any, error) {
	found, err := client.admin.FetchOffsets(context.Background(), args.Group)
	offsets := [][2]int64{}
	for partition, offset := range found[args.Topic] {
		offsets = append(offsets, [2]int64{int64(partition), offset.At})
	}
	return offsets, err
}

func (client *administration) setGroupOffsets(args arguments) (any, error) {
	wanted := kadm.Offsets{}
	for _, pair := range args.Offsets {
		wanted.AddOffset(args.Topic, int32(pair[0]), pair[1], -1)
	}
	changed, err := client.admin.CommitOffsets(context.Background(), args.Group, wanted)
	return nil, first(err, changed.Error())
}

func (client *administration) deleteGroupOffsets(args arguments) (any, error) {
	var partitions []int32
	if err := json.Unmarshal(args.Partitions, &partitions); err != nil {
		return nil, err
	}
	unwanted := kadm.TopicsSet{}
	unwanted.Add(args.Topic, partitions...)
	deleted, err := client.admin.DeleteOffsets(context.Background(), args.Group, unwanted)
	return nil, first(err, deleted.Error())
}

// first is the first error that is one.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
