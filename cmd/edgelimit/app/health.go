package app

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/node"
)

const healthHelp = `
For the health checks of containers that have no shell: HEALTHCHECK CMD ["/edgelimit", "health"].

Another node:  edgelimit health --url http://10.0.1.7:9100

Exit status: 0 ready, 1 not ready or no answer.`

func healthCommand() *cli.Command {
	return &cli.Command{
		Name:        "health",
		Usage:       "ask a running node whether it is ready",
		Description: healthHelp,
		Flags:       nodeFlags("probes", "http://"+node.DefaultHealth+"/readyz", "HEALTH_URL", 2*time.Second),
		Action:      health,
	}
}

func health(c *cli.Context) error {
	probe, h, err := target(c)
	if err != nil {
		return err
	}
	if probe.Path == "" || probe.Path == "/" {
		probe.Path = "/readyz"
	}
	req, err := http.NewRequestWithContext(c.Context, http.MethodGet, probe.String(), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := h.Do(req)
	if err != nil {
		return cli.Exit(fmt.Sprintf("no answer (is 'edgelimit serve' running?): %v", err), 1)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return cli.Exit(fmt.Sprintf("read the node's answer: %v", err), 1)
	}
	if resp.StatusCode != http.StatusOK {
		return cli.Exit(fmt.Sprintf("not ready: %s: %s", resp.Status, strings.TrimSpace(string(body))), 1)
	}
	degraded := strings.TrimRight(strings.TrimPrefix(string(body), "ok"), "\n") // why, if it is
	_, err = fmt.Fprintln(c.App.Writer, "ready"+degraded)
	return err
}
