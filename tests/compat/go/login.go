package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// login is what tests/compat/login.py says of logging in.
type login struct {
	CA          string `json:"ca"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// connecting are options of a client, and those that all have: the address, and what they log in with.
func connecting(bootstrap string, options ...kgo.Opt) []kgo.Opt {
	options = append(options, kgo.SeedBrokers(bootstrap))
	given := os.Getenv("COMPAT_LOGIN")
	if given == "" {
		return options
	}
	var with login
	must(json.Unmarshal([]byte(given), &with))
	authority, err := os.ReadFile(with.CA)
	must(err)
	trust := &tls.Config{RootCAs: x509.NewCertPool()}
	trust.RootCAs.AppendCertsFromPEM(authority)
	if with.Certificate != "" {
		shown, err := tls.LoadX509KeyPair(with.Certificate, with.Key)
		must(err)
		trust.Certificates = []tls.Certificate{shown}
	}
	options = append(options, kgo.DialTLSConfig(trust))
	if mechanism := with.sasl(); mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options
}

func (with login) sasl() sasl.Mechanism {
	switch with.Mechanism {
	case "PLAIN":
		return plain.Auth{User: with.User, Pass: with.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: with.User, Pass: with.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: with.User, Pass: with.Password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: with.Token}.AsMechanism()
	}
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
