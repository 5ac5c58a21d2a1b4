// Command compat-go answers calls on standard input by franz-go: "serve BOOTSTRAP"; or says its "version".
//
// Calls and answers are those of tests/compat/process.py.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	missing  = -1
	notKafka = -1000
)

// verb is one thing that a scenario may ask for. What it returns is written as JSON.
type verb func(args arguments) (any, error)

type call struct {
	Verb string    `json:"verb"`
	Args arguments `json:"args"`
}

func main() {
	if os.Args[1] == "version" {
		fmt.Println(version())
		return
	}
	bootstrap := os.Args[2]
	verbs := map[string]verb{}
	(&records{bootstrap: bootstrap}).addTo(verbs)
	(&member{bootstrap: bootstrap}).addTo(verbs)
	newAdministration(bootstrap).addTo(verbs)
	newInquiries(bootstrap).addTo(verbs)
	(&transactions{bootstrap: bootstrap}).addTo(verbs)

	calls := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := calls.ReadBytes('\n')
		if err != nil {
			return
		}
		_ = answers.Encode(answer(verbs, line))
	}
}

func answer(verbs map[string]verb, line []byte) map[string]any {
	var asked call
	if err := json.Unmarshal(line, &asked); err != nil {
		return map[string]any{"refused": notKafka, "message": err.Error()}
	}
	play, known := verbs[asked.Verb]
	if !known {
		return map[string]any{"unsupported": ""}
	}
	result, err := play(asked.Args)
	var reason unsupported
	switch {
	case errors.As(err, &reason):
		return map[string]any{"unsupported": string(reason)}
	case err != nil:
		return map[string]any{"refused": code(err), "message": err.Error()}
	}
	return map[string]any{"result": result}
}

// unsupported is the reason why the client can not do what it is asked for.
type unsupported string

func (reason unsupported) Error() string { return string(reason) }

func code(err error) int {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return int(kafka.Code)
	}
	return notKafka
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return module.Version
		}
	}
	return "unknown"
}
