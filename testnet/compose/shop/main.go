// Command shop is the upstream service of the sidecar example: it sells to whoever the node beside it admits.
//
//	curl http://127.0.0.1:8113/buy?client=alice
//
// It asks its sidecar on loopback before it serves. Should the sidecar be away, it serves all the same: a limiter that
// is down must not take the shop down.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
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
func health(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+listen+"/livez", nil)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Do(req)
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
	sidecar string // the URL of its HTTP door
	client  http.Client
	log     *slog.Logger
}

// sidecarTimeout is far more than a decision on loopback takes, and little enough that a customer does not notice.
const sidecarTimeout = 50 * time.Millisecond

func newShop(sidecar string, log *slog.Logger) http.Handler {
	s := &shop{sidecar: sidecar, client: http.Client{Timeout: sidecarTimeout}, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /buy", s.buy)
	return mux
}

func (s *shop) buy(w http.ResponseWriter, r *http.Request) {
	client := cmp.Or(r.URL.Query().Get("client"), "somebody")
	d, err := s.ask(r.Context(), client)
	if err != nil {
		s.log.Warn("the sidecar does not answer, serving without it", "error", err)
		fmt.Fprintln(w, "sold (unlimited: the sidecar is away)")
		return
	}
	if !d.Allowed {
		// Rounded up: who comes back when told is not turned away again.
		w.Header().Set("Retry-After", strconv.FormatInt((d.RetryAfterMs+999)/1000, 10))
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	fmt.Fprintf(w, "sold, %d left\n", d.Remaining)
}

type decision struct {
	Allowed      bool   `json:"allowed"`
	Remaining    uint64 `json:"remaining"`
	RetryAfterMs int64  `json:"retry_after_ms"`
}

func (s *shop) ask(ctx context.Context, client string) (decision, error) {
	var d decision
	body, err := json.Marshal(map[string]string{"rule": "per_client", "identity": client})
	if err != nil {
		return d, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.sidecar+"/v1/check", bytes.NewReader(body))
	if err != nil {
		return d, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return d, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return d, fmt.Errorf("the sidecar answered %s", resp.Status)
	}
	return d, json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&d)
}
