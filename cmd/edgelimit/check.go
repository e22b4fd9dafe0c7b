package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/rules"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "ask a running node whether a request may pass",
		ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]",
		Description: "Ask by rule:          edgelimit check --rule per_ip --identity 192.0.2.1\n" +
			"Ask by descriptors:   edgelimit check --domain edge remote_address=192.0.2.1 path=/login,remote_address=192.0.2.1\n" +
			"(one argument a descriptor, its entries separated by commas)\n\n" +
			"Exit status: 0 allowed, 1 denied, 2 no answer.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "addr", Usage: "`URL` of the node's HTTP door", Value: "http://" + node.DefaultHTTP, EnvVars: env("ADDR")},
			&cli.StringFlag{Name: "rule", Usage: "`NAME` of the rule"},
			&cli.StringFlag{Name: "identity", Usage: "`WHO` is counted under the rule"},
			&cli.StringFlag{Name: "domain", Usage: "`NAME` of the domain of the descriptors"},
			&cli.Uint64Flag{Name: "cost", Usage: "what the request is charged", Value: 1},
			&cli.BoolFlag{Name: "peek", Usage: "ask without charging"},
			&cli.BoolFlag{Name: "json", Usage: "print the node's answer as JSON"},
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for the answer", Value: 5 * time.Second},
		},
		Action: check,
	}
}

func check(c *cli.Context) error {
	req := node.Request{Domain: c.String("domain"), Rule: c.String("rule"), Identity: c.String("identity"),
		Cost: c.Uint64("cost"), Peek: c.Bool("peek")}
	for _, arg := range c.Args().Slice() {
		descriptor, err := parseDescriptor(arg)
		if err != nil {
			return err
		}
		req.Descriptors = append(req.Descriptors, descriptor)
	}
	if req.Rule == "" && len(req.Descriptors) == 0 {
		return errors.New("say what to check: --rule and --identity, or --domain and descriptors; see edgelimit check --help")
	}
	if req.Rule == "" && req.Domain == "" {
		return errors.New("say which rules the descriptors are held against: --domain, as in --domain edge")
	}
	if req.Peek && req.Cost > 1 {
		return errors.New("--peek asks about a request of cost 1; leave --cost out")
	}
	a, err := client.New(c.String("addr"), &http.Client{Timeout: c.Duration("timeout")}).Check(c.Context, req)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if err := json.NewEncoder(c.App.Writer).Encode(a); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(c.App.Writer, inWords(a))
	}
	if !a.Allowed {
		return cli.Exit("", 1)
	}
	return nil
}

// parseDescriptor reads KEY=VALUE,KEY=VALUE.
func parseDescriptor(arg string) ([]rules.Entry, error) {
	var descriptor []rules.Entry
	for pair := range strings.SplitSeq(arg, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("descriptor %q: want KEY=VALUE, several separated by commas", arg)
		}
		descriptor = append(descriptor, rules.Entry{Key: key, Value: value})
	}
	return descriptor, nil
}

// inWords says the answer to a person.
func inWords(a client.Answer) string {
	var s string
	switch {
	case a.Rule == "" && a.Allowed:
		return "allowed: no rule limits this"
	case a.Allowed:
		s = fmt.Sprintf("allowed by %s: %d of %d left, all of it again in %v", a.Rule, a.Remaining, a.Limit, a.ResetAfter)
		if a.Delay > 0 {
			s += fmt.Sprintf("; its turn is in %v", a.Delay)
		}
	case a.RetryAfter == client.Never:
		s = fmt.Sprintf("denied by %s: more than its limit of %d can ever admit", a.Rule, a.Limit)
	default:
		s = fmt.Sprintf("denied by %s: %d of %d left, try again in %v", a.Rule, a.Remaining, a.Limit, a.RetryAfter)
	}
	if a.Mode == "shadow" {
		s += " (in shadow mode: nothing is denied)"
	}
	if a.Degraded {
		s += " (the node cannot see the whole cluster)"
	}
	return s
}
