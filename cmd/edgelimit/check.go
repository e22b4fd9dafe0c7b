package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
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
			&cli.BoolFlag{Name: "json", Usage: "print the node's answer as it is"},
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for the answer", Value: 5 * time.Second},
		},
		Action: check,
	}
}

// entry and checkBody are the request of POST /v1/check, answer its response.
type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type checkBody struct {
	Domain      string    `json:"domain,omitempty"`
	Descriptors [][]entry `json:"descriptors,omitempty"`
	Rule        string    `json:"rule,omitempty"`
	Identity    string    `json:"identity,omitempty"`
	Cost        uint64    `json:"cost,omitempty"`
	Peek        bool      `json:"peek,omitempty"`
}

type answer struct {
	Allowed      *bool  `json:"allowed"` // nil: not the answer of a node
	Rule         string `json:"rule"`
	Limit        uint64 `json:"limit"`
	Remaining    uint64 `json:"remaining"`
	ResetAfterMs int64  `json:"reset_after_ms"`
	RetryAfterMs int64  `json:"retry_after_ms"`
	DelayMs      int64  `json:"delay_ms"`
	Degraded     bool   `json:"degraded"`
	Title        string `json:"title"` // of a refusal
	Detail       string `json:"detail"`
}

func check(c *cli.Context) error {
	body := checkBody{Domain: c.String("domain"), Rule: c.String("rule"), Identity: c.String("identity"),
		Cost: c.Uint64("cost"), Peek: c.Bool("peek")}
	for _, arg := range c.Args().Slice() {
		var descriptor []entry
		for pair := range strings.SplitSeq(arg, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("descriptor %q: want KEY=VALUE, several separated by commas", arg)
			}
			descriptor = append(descriptor, entry{key, value})
		}
		body.Descriptors = append(body.Descriptors, descriptor)
	}
	if body.Rule == "" && len(body.Descriptors) == 0 {
		return errors.New("say what to check: --rule and --identity, or --domain and descriptors; see edgelimit check --help")
	}
	if body.Peek && body.Cost > 1 {
		return errors.New("--peek asks about a request of cost 1; leave --cost out")
	}
	raw, a, err := ask(c, body)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		fmt.Fprintln(c.App.Writer, strings.TrimSpace(string(raw)))
	} else {
		fmt.Fprintln(c.App.Writer, a)
	}
	if !*a.Allowed {
		return cli.Exit("", 1)
	}
	return nil
}

func ask(c *cli.Context, body checkBody) (raw []byte, a answer, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, a, err
	}
	url := strings.TrimSuffix(c.String("addr"), "/") + "/v1/check"
	if !strings.Contains(url, "://") {
		url = "http://" + url
	}
	req, err := http.NewRequestWithContext(c.Context, http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		return nil, a, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: c.Duration("timeout")}
	resp, err := client.Do(req)
	if err != nil {
		return nil, a, fmt.Errorf("ask the node (is 'edgelimit serve' running?): %w", err)
	}
	defer resp.Body.Close()
	if raw, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20)); err != nil {
		return nil, a, fmt.Errorf("read the node's answer: %w", err)
	}
	switch err := json.Unmarshal(raw, &a); {
	case err == nil && resp.StatusCode == http.StatusOK && a.Allowed != nil:
		return raw, a, nil
	case err == nil && resp.StatusCode != http.StatusOK && a.Title != "":
		return nil, a, fmt.Errorf("the node refused: %s: %s", a.Title, a.Detail)
	}
	return nil, a, fmt.Errorf("%s does not answer like an edgelimit node: status %s", url, resp.Status)
}

// String says the answer to a person.
func (a answer) String() string {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	var s string
	switch {
	case a.Rule == "" && *a.Allowed:
		return "allowed: no rule limits this"
	case *a.Allowed:
		s = fmt.Sprintf("allowed by %s: %d of %d left, all of it again in %v", a.Rule, a.Remaining, a.Limit, ms(a.ResetAfterMs))
		if a.DelayMs > 0 {
			s += fmt.Sprintf("; its turn is in %v", ms(a.DelayMs))
		}
	case a.RetryAfterMs < 0:
		s = fmt.Sprintf("denied by %s: more than its limit of %d can ever admit", a.Rule, a.Limit)
	default:
		s = fmt.Sprintf("denied by %s: %d of %d left, try again in %v", a.Rule, a.Remaining, a.Limit, ms(a.RetryAfterMs))
	}
	if a.Degraded {
		s += " (the node cannot see the whole cluster)"
	}
	return s
}
