package main

import (
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// arguments are all that a verb may be given; each takes what it needs.
type arguments struct {
	Topic           string            `json:"topic"`
	Partition       int32             `json:"partition"`
	Partitions      json.RawMessage   `json:"partitions"`
	Records         []outgoing        `json:"records"`
	Codec           string            `json:"codec"`
	MaxBytes        *int32            `json:"max_bytes"`
	Start           start             `json:"start"`
	Count           int               `json:"count"`
	CommittedOnly   bool              `json:"committed_only"`
	TimestampMs     int64             `json:"timestamp_ms"`
	Group           string            `json:"group"`
	SessionMs       int               `json:"session_ms"`
	HandOver        bool              `json:"hand_over"`
	InstanceID      *string           `json:"instance_id"`
	Seconds         float64           `json:"seconds"`
	Total           int               `json:"total"`
	Configs         map[string]string `json:"configs"`
	Key             string            `json:"key"`
	Value           string            `json:"value"`
	Before          int64             `json:"before"`
	Offsets         [][2]int64        `json:"offsets"`
	TransactionalID string            `json:"transactional_id"`
	Commit          bool              `json:"commit"`
}

// start is where to begin reading a partition: "beginning", "end", "offset" or "time".
type start struct {
	at    string
	value int64
}

func (where *start) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&where.at, &where.value})
}

func (where start) offset() kgo.Offset {
	switch where.at {
	case "beginning":
		return kgo.NewOffset().AtStart()
	case "end":
		return kgo.NewOffset().AtEnd()
	case "time":
		return kgo.NewOffset().AfterMilli(where.value)
	}
	return kgo.NewOffset().At(where.value)
}

// outgoing is key, value, headers, partition, timestamp.
type outgoing struct {
	key, value  []byte
	headers     []header
	partition   *int32
	timestampMs *int64
}

type header struct {
	name  string
	value []byte
}

func (each *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&each.name, &each.value})
}

func (record *outgoing) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&record.key, &record.value, &record.headers, &record.partition, &record.timestampMs})
}

func (record outgoing) to(topic string) *kgo.Record {
	sent := &kgo.Record{Topic: topic, Key: record.key, Value: record.value}
	for _, each := range record.headers {
		sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: each.name, Value: each.value})
	}
	if record.partition != nil {
		sent.Partition = *record.partition
	}
	if record.timestampMs != nil {
		sent.Timestamp = time.UnixMilli(*record.timestampMs)
	}
	return sent
}

func incoming(record *kgo.Record) []any {
	headers := [][]any{}
	for _, each := range record.Headers {
		headers = append(headers, []any{each.Key, each.Value})
	}
	return []any{record.Partition, record.Offset, record.Timestamp.UnixMilli(), record.Key, record.Value, headers}
}
