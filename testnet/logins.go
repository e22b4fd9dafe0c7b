package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/edgelimit/edgelimit/testnet/cluster"
)

// wrongPasswords is how many the rule failed_logins lets a user try.
const wrongPasswords = 10

func loginsCommand(open opener) *cli.Command {
	return &cli.Command{
		Name:  "logins",
		Usage: "try wrong passwords at the proxies of all regions: the eleventh is denied at each of them",
		Description: "Needs 'go run ./testnet up --with sidecar'. A right password before each wrong one is let\n" +
			"through and not counted. Nobody else has the user.",
		Flags: []cli.Flag{patienceFlag(10 * time.Second)},
		Action: act(open, func(ctx context.Context, cl *cluster.Cluster, c *cli.Context) (string, error) {
			sidecars, err := sidecarsOf(ctx, cl)
			if err != nil {
				return "", err
			}
			var proxies []string
			for _, n := range sidecars {
				proxies = append(proxies, n.HTTP)
			}
			l := logins{proxies, "user-" + strconv.FormatInt(time.Now().UnixMilli(), 36), c.Duration("patience")}
			took, err := l.try(ctx)
			return fmt.Sprintf("%d wrong passwords at %d proxies got 401, the next one 429 at each, %d ms later",
				wrongPasswords, len(proxies), took.Milliseconds()), err
		}),
	}
}

// sidecarsOf returns the proxies of the testnet. That there are none is an error.
func sidecarsOf(ctx context.Context, cl *cluster.Cluster) ([]cluster.Node, error) {
	nodes, err := cl.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	sidecars := slices.DeleteFunc(nodes, func(n cluster.Node) bool { return !n.Sidecar })
	if len(sidecars) == 0 {
		return nil, errors.New("no proxy is up; start them: go run ./testnet up --with sidecar")
	}
	return sidecars, nil
}

// logins are tries of one user to log in at the shops behind the proxies, whose URLs have no path.
type logins struct {
	proxies  []string
	user     string
	patience time.Duration // from the last wrong password until all proxies deny
}

// try sends wrong passwords to the proxies in turn, until the limit is used up, and a right one before each. It returns
// how long after the last one the slowest proxy denied the right password, too. What a proxy answered otherwise than it
// should is an error.
func (l *logins) try(ctx context.Context) (time.Duration, error) {
	for i := range wrongPasswords {
		proxy := l.proxies[i%len(l.proxies)]
		if err := errors.Join(l.expect(ctx, proxy, "right", http.StatusOK),
			l.expect(ctx, proxy, "wrong", http.StatusUnauthorized)); err != nil {
			return 0, fmt.Errorf("try %d: %w", i+1, err)
		}
	}
	began := time.Now()
	var took time.Duration
	for _, proxy := range l.proxies {
		// A right password is never counted, so it may ask as often as need be.
		for {
			err := l.expect(ctx, proxy, "right", http.StatusTooManyRequests)
			took = time.Since(began)
			if err == nil {
				break
			}
			if took > l.patience || ctx.Err() != nil {
				return took, fmt.Errorf("%v after %d wrong passwords: %w", took, wrongPasswords, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, proxy := range l.proxies {
		if err := l.expect(ctx, proxy, "wrong", http.StatusTooManyRequests); err != nil {
			return took, err
		}
	}
	return took, nil
}

// expect logs in and reports an answer of another status.
func (l *logins) expect(ctx context.Context, proxy, password string, status int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	body := strings.NewReader(url.Values{"password": {password}}.Encode())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, proxy+"/login?user="+l.user, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != status {
		return fmt.Errorf("%s answers %s to a %s password, want %d", proxy, resp.Status, password, status)
	}
	return nil
}
