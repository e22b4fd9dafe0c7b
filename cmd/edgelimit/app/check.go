package app

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/client"
)

const checkHelp = `
By rule:         edgelimit check --rule per_ip --identity 192.0.2.1
By descriptors:  edgelimit check path=/login,remote_address=::1

Each argument is a descriptor, its entries separated by commas: one layer of the request, which is charged in all of
them or in none.

Exit status: 0 allowed, 1 denied, 2 no answer.`

func checkCommand() *cli.Command {
	const request group = "The request"
	return &cli.Command{
		Name:        "check",
		Usage:       "ask a running node whether a request may pass",
		ArgsUsage:   "[KEY=VALUE[,KEY=VALUE...] ...]",
		Description: checkHelp,
		Flags: slices.Concat(requestFlags(request), []cli.Flag{
			request.flag("cost", "what the request is charged, in requests", new(uint64(1))),
			request.flag("peek", "ask without charging", new(bool)),
		}, nodeFlags("HTTP API", "http://"+node.DefaultHTTP, "URL", 5*time.Second), []cli.Flag{
			plain.flag("json", "print the node's answer as JSON", new(bool)),
		}),
		Action: check,
	}
}

func check(c *cli.Context) error {
	req, ok, err := requestOf(c)
	if err != nil {
		return err
	}
	req.Cost, req.Peek = c.Uint64("cost"), c.Bool("peek")
	switch {
	case !ok:
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
		err = json.NewEncoder(c.App.Writer).Encode(a)
	} else {
		_, err = fmt.Fprintln(c.App.Writer, answerText(a))
	}
	return exitStatus(err, a.Allowed)
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
