package app

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "ask a running node whether a request may pass",
		ArgsUsage: "[KEY=VALUE[,KEY=VALUE...] ...]",
		Description: "By rule:         edgelimit check --rule per_ip --identity 192.0.2.1\n" +
			"By descriptors:  edgelimit check path=/login,remote_address=::1\n\n" +
			"Each argument is a descriptor, its entries separated by commas: one layer of the request, which is " +
			"charged " +
			"in all of them or in none.\n\n" +
			"Exit status: 0 allowed, 1 denied, 2 no answer.",
		Flags: append(
			requestFlags("The request"),
			&cli.Uint64Flag{Name: "cost", Usage: "what the request is charged, in requests", Value: 1,
				Category: "The request"},
			&cli.BoolFlag{Name: "peek", Usage: "ask without charging", Category: "The request"},
			nodeFlag("HTTP API", "http://"+node.DefaultHTTP, "URL"),
			timeoutFlag(5*time.Second),
			&cli.BoolFlag{Name: "json", Usage: "print the node's answer as JSON"},
		),
		Action: check,
	}
}

func check(c *cli.Context) error {
	req, err := requestOf(c)
	if err != nil {
		return err
	}
	req.Cost, req.Peek = c.Uint64("cost"), c.Bool("peek")
	switch {
	case req.Rule == "" && len(req.Descriptors) == 0:
		return misuse(c.Command, "say what to check: --rule and --identity, or descriptors")
	case req.Peek && req.Cost > 1:
		return misuse(c.Command, "--peek asks about a request of cost 1: leave --cost out")
	case os.Getenv("EDGELIMIT_ADDR") != "" && !c.IsSet("url"):
		return misuse(c.Command, "EDGELIMIT_ADDR is called EDGELIMIT_URL now")
	}
	node, err := newClient(c)
	if err != nil {
		return err
	}
	a, err := node.Check(c.Context, req)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if err := json.NewEncoder(c.App.Writer).Encode(a); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(c.App.Writer, answerText(a))
	}
	if !a.Allowed {
		return cli.Exit("", 1)
	}
	return nil
}

func answerText(a client.Answer) string {
	var s string
	switch {
	case a.Rule == "" && a.Allowed:
		return "allowed: no rule limits this"
	case a.Allowed:
		s = fmt.Sprintf("allowed by %s: %d of %d left, all of it again in %v", a.Rule, a.Remaining, a.Limit,
			a.ResetAfter)
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
