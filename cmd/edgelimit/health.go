package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

func healthCommand() *cli.Command {
	return &cli.Command{
		Name:  "health",
		Usage: "ask a running node whether it is ready",
		Description: "For the health checks of containers that have no shell: HEALTHCHECK CMD [\"/edgelimit\", \"health\"].\n\n" +
			"Exit status: 0 ready, 1 not ready or no answer.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "url", Usage: "`URL` of the node's probe", Value: "http://" + node.DefaultHealth + "/readyz", EnvVars: env("HEALTH_URL")},
			&cli.DurationFlag{Name: "timeout", Usage: "how long to wait for the answer", Value: 2 * time.Second},
		},
		Action: health,
	}
}

func health(c *cli.Context) error {
	if c.Args().Present() {
		return fmt.Errorf("health takes no arguments, got %q; see edgelimit health --help", c.Args().First())
	}
	req, err := http.NewRequestWithContext(c.Context, http.MethodGet, c.String("url"), nil)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	client := http.Client{Timeout: c.Duration("timeout"), Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return cli.Exit(fmt.Sprintf("no answer (is 'edgelimit serve' running?): %v", err), 1)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return cli.Exit(fmt.Sprintf("read the node's answer: %v", err), 1)
	}
	if resp.StatusCode != http.StatusOK {
		return cli.Exit(fmt.Sprintf("not ready: %s: %s", resp.Status, strings.TrimSpace(string(said))), 1)
	}
	fmt.Fprintln(c.App.Writer, "ready")
	return nil
}
