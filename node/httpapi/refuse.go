package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/edgelimit/edgelimit/node/answer"
	"github.com/edgelimit/edgelimit/node/rules"
)

// maxDetail caps how much of a client's own words a refusal echoes, in bytes.
const maxDetail = 512

// refusal is an error that a client may see, with its status.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

func refusef(status int, format string, args ...any) error {
	return &refusal{status: status, detail: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return refusef(http.StatusBadRequest, format, args...)
}

// refusalOf returns what a client may see of an error. The node's own errors are logged instead.
func (a *api) refusalOf(ctx context.Context, err error) *refusal {
	if r, ok := errors.AsType[*refusal](err); ok {
		return &refusal{r.status, clip(r.detail)}
	}
	switch {
	case errors.Is(err, rules.ErrUnknownRule):
		return &refusal{http.StatusNotFound, clip(err.Error()) + ": use the name of one of this node's rules"}
	case errors.Is(err, rules.ErrInvalidRequest):
		return &refusal{http.StatusBadRequest, clip(err.Error())}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &refusal{http.StatusServiceUnavailable, "the node did not decide in time: try again"}
	}
	a.logFailure(ctx, err)
	return &refusal{http.StatusInternalServerError, "the node failed to decide: try again, and see its log"}
}

func (a *api) logFailure(ctx context.Context, err error) {
	a.opt.Logger.LogAttrs(ctx, slog.LevelError, "a check failed", slog.Any("error", err))
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	f := a.refusalOf(r.Context(), err)
	if f.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	answer.NewProblem(f.status, f.detail).Write(w)
}

// clip shortens text that may hold a client's words and makes it valid UTF-8.
func clip(s string) string {
	if len(s) > maxDetail {
		s = s[:maxDetail] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// refusePage refuses requests that a script or form of a web page sends. Otherwise a page that somebody opens on a
// machine that reaches the node could charge as it likes: a POST of text needs no permission from the server.
//
// Browsers send Origin with each POST, and most send Sec-Fetch-Site. No other client does, so curl and libraries need
// no header. A page of the node's own address passes, if that is an IP address or localhost: a name may have been
// pointed to the node's address after the page was loaded (DNS rebinding), and then both look like one origin.
//
// /v1/auth does not ask: its headers are those of the original request.
func refusePage(r *http.Request) error {
	origins, sites := r.Header["Origin"], r.Header["Sec-Fetch-Site"]
	if origins == nil && sites == nil {
		return nil
	}
	own := isOwnName(r.Host)
	for _, site := range sites {
		own = own && (site == "same-origin" || site == "none")
	}
	for _, origin := range origins {
		u, err := url.Parse(origin)
		own = own && err == nil && strings.EqualFold(u.Host, r.Host)
	}
	if own {
		return nil
	}
	return refusef(http.StatusForbidden, "a page of another origin must not ask: ask from a server; "+
		"a proxy that hands on what browsers send has to drop Origin and Sec-Fetch-Site")
}

// isOwnName reports whether a Host is an address or localhost, which nobody can rebind.
func isOwnName(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	_, err = netip.ParseAddr(name)
	return err == nil || strings.EqualFold(name, "localhost")
}
