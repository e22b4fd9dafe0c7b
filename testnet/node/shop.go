package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/urfave/cli/v2"
)

// shopAddr is on loopback: clients reach the shop through the proxy beside it alone.
const shopAddr = "127.0.0.1:8000"

func shopCommand() *cli.Command {
	return &cli.Command{Name: "shop", Usage: "serve the shop that the testnet's proxies stand before",
		Flags:  []cli.Flag{&cli.StringFlag{Name: "listen", Usage: "`ADDRESS` of the shop", Value: shopAddr}},
		Action: func(c *cli.Context) error { return serveShop(c.Context, c.String("listen")) }}
}

func serveShop(ctx context.Context, addr string) error {
	s := &http.Server{Addr: addr, Handler: newShop(), ReadHeaderTimeout: 2 * time.Second, IdleTimeout: time.Minute}
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

// newShop returns the shop, which knows nothing of limits: it sells to everybody, and lets in who knows the password.
func newShop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	for _, path := range []string{"/buy", "/pay", "/feed", "/page"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "sold") })
	}
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("password") != "right" {
			http.Error(w, "wrong password", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, "welcome")
	})
	return mux
}
