package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const heartbeat = 500 * time.Millisecond

// member is the one of a group that this process may be.
type member struct {
	bootstrap string
	consumer  *kgo.Client
	topic     string
	lock      sync.Mutex
	owned     map[int32]bool
}

func (client *member) addTo(verbs map[string]verb) {
	verbs["join"] = client.join
	verbs["join_by_consumer_protocol"] = func(args arguments) (any, error) {
		return client.subscribe(args, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	verbs["poll"] = client.poll
	verbs["owned"] = func(arguments) (any, error) { return client.partitions(), nil }
	verbs["commit"] = func(arguments) (any, error) { return nil, client.commit() }
	verbs["leave"] = func(arguments) (any, error) { client.consumer.CloseAllowingRebalance(); return nil, nil }
	verbs["consume"] = client.consume
}

func (client *member) join(args arguments) (any, error) {
	session := 10 * time.Second
	if args.SessionMs > 0 {
		session = time.Duration(args.SessionMs) * time.Millisecond
	}
	return client.subscribe(args, kgo.SessionTimeout(session), kgo.HeartbeatInterval(min(session/4, heartbeat)))
}

func (client *member) subscribe(args arguments, protocol ...kgo.Opt) (any, error) {
	client.topic = args.Topic
	client.owned = map[int32]bool{}
	options := append(connecting(client.bootstrap, protocol...),
		kgo.ConsumerGroup(args.Group),
		kgo.ConsumeTopics(args.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) { client.own(given, true) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { client.own(lost, false) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, consumer *kgo.Client, revoked map[string][]int32) {
			if args.HandOver {
				_ = consumer.CommitUncommittedOffsets(ctx)
			}
			client.own(revoked, false)
		}),
	)
	if args.InstanceID != nil {
		options = append(options, kgo.InstanceID(*args.InstanceID))
	}
	var err error
	client.consumer, err = kgo.NewClient(options...)
	return nil, err
}

func (client *member) poll(args arguments) (any, error) {
	found, err := poll(client.consumer, args.Count, time.Duration(args.Seconds*float64(time.Second)))
	if errors.Is(err, kerr.UnknownTopicID) {
		// A topic that was made anew is another topic to it, which has to be asked for.
		client.consumer.PurgeTopicsFromConsuming(client.topic)
		client.consumer.AddConsumeTopics(client.topic)
	}
	return found, err
}

func (client *member) consume(args arguments) (any, error) {
	if _, err := client.join(args); err != nil {
		return nil, err
	}
	defer client.consumer.CloseAllowingRebalance()
	found, err := poll(client.consumer, args.Count, patience)
	if err != nil {
		return nil, err
	}
	return found, client.commit()
}

func (client *member) commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return client.consumer.CommitUncommittedOffsets(ctx)
}

func (client *member) own(changed map[string][]int32, owned bool) {
	client.lock.Lock()
	defer client.lock.Unlock()
	for _, partitions := range changed {
		for _, partition := range partitions {
			if owned {
				client.owned[partition] = true
			} else {
				delete(client.owned, partition)
			}
		}
	}
}

func (client *member) partitions() []int32 {
	client.lock.Lock()
	defer client.lock.Unlock()
	found := []int32{}
	for partition := range client.owned {
		found = append(found, partition)
	}
	slices.Sort(found)
	return found
}
