// Command shop is the upstream service of the sidecar example: it sells to whoever the node beside it admits.
//
//	curl http://127.0.0.1:8113/buy?client=alice
//
// It asks its sidecar on loopback before it serves. Should the sidecar be away, it serves all the same: a limiter that
// is down must not take the shop down.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/edgelimit/edgelimit/node/client"
	"github.com/edgelimit/edgelimit/node/rules"
)

const listen = ":8000"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	run := serve
	if len(os.Args) > 1 && os.Args[1] == "health" {
		run = health
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context) error {
	s := &http.Server{
		Addr: listen, Handler: newShop("http://127.0.0.1:8080", slog.Default()), ReadHeaderTimeout: 2 * time.Second,
		IdleTimeout: time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- s.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return s.Shutdown(ctx)
}

// health is the container's health check.
func health(context.Context) error {
	asker := http.Client{Timeout: 2 * time.Second}
	resp, err := asker.Get("http://127.0.0.1" + listen + "/livez")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// shop serves those whom the sidecar admits.
type shop struct {
	sidecar *client.Client
	log     *slog.Logger
}

// sidecarTimeout is far more than a decision on loopback takes, and little enough that a customer does not notice.
const sidecarTimeout = 50 * time.Millisecond

func newShop(sidecar string, log *slog.Logger) http.Handler {
	s := &shop{client.New(sidecar, &http.Client{Timeout: sidecarTimeout}), log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /buy", s.buy)
	return mux
}

func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	customer := cmp.Or(r.URL.Query().Get("client"), "somebody")
	a, err := s.sidecar.Check(r.Context(), rules.Request{Rule: "per_client", Identity: customer})
	switch {
	case err != nil:
		s.log.Warn("the sidecar does not answer, serving without it", "error", err)
		fmt.Fprintln(w, "sold (unlimited: the sidecar is away)")
	case !a.Allowed:
		// Rounded up: who comes back in time is not refused again.
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(a.RetryAfter.Seconds()))))
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	default:
		fmt.Fprintf(w, "sold, %d left\n", a.Remaining)
	}
}
