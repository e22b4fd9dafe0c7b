package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgelimit/edgelimit/node/certs"
	"github.com/edgelimit/edgelimit/node/limits"
)

// role is what an operator may do; a larger one may do more.
type role int

const (
	nothing role = iota
	read         // GET, and the playground
	operate      // the rest, and profiles
)

var roles = map[string]role{"read": read, "operate": operate}

// minToken is the shortest token, in bytes: one that cannot be guessed.
const minToken = 32

// token is what an operator shows in place of a certificate.
type token struct {
	hash [sha256.Size]byte
	role role
	name string
}

// tokens are those of a file.
type tokens struct {
	all      []token
	inForce  context.Context // ends when others take their place
	replaced context.CancelFunc
}

// What operators are refused for.
const (
	refusedMissing = "missing" // neither a token nor a certificate
	refusedWrong   = "wrong"   // an unknown token
	refusedRole    = "role"    // it takes the role operate
)

// Attempts with wrong tokens wait for failureDelay, maxSlowed of them at a time. Others are refused at once.
const (
	failureDelay = time.Second
	maxSlowed    = 16
	logEvery     = time.Minute
)

// Access decides what operators may do. Without tokens, whoever is not asked for a certificate may do everything: only
// this machine reaches the listener then. Its methods are safe for concurrent use.
type Access struct {
	operators []string               // names in certificates
	tokens    atomic.Pointer[tokens] // nil: none are asked for
	slowed    *limits.Budget         // attempts with wrong tokens under way
	streams   *limits.Budget         // of events and of status
	log       *slog.Logger

	mu       sync.Mutex
	refused  map[string]uint64 // by reason
	unlogged int               // wrong tokens since the last line
	logged   time.Time
}

// NewAccess returns an Access without tokens. Certificates with one of the names may operate, and others read; without
// names all may operate.
func NewAccess(operators []string, budgets *limits.Budgets, log *slog.Logger) *Access {
	return &Access{operators: operators, log: log,
		slowed:  budgets.New("admin", "wrong_tokens", maxSlowed),
		streams: budgets.New("admin", "push_streams", maxStreams),
		refused: map[string]uint64{refusedMissing: 0, refusedWrong: 0, refusedRole: 0}}
}

// SetTokens replaces the tokens by those of a file's text. Requests that go on end, such as streams: who still may asks
// again. On an error, which quotes none, the tokens stay what they are. It is called by one goroutine at a time.
func (a *Access) SetTokens(text []byte) error {
	var all []token
	for i, line := range strings.Split(string(text), "\n") {
		n, words := i+1, strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		t := token{role: roles[words[0]]}
		switch {
		case t.role == nothing || len(words) < 2 || len(words) > 3:
			return fmt.Errorf("line %d: want \"read TOKEN\" or \"operate TOKEN\", and a name behind it if you like", n)
		case len(words[1]) < minToken:
			return fmt.Errorf("line %d: the token has %d characters, want at least %d: openssl rand -hex 32 makes one",
				n, len(words[1]), minToken)
		case len(words) == 3:
			t.name = words[2]
		}
		t.hash = sha256.Sum256([]byte(words[1]))
		if slices.ContainsFunc(all, func(o token) bool { return o.hash == t.hash }) {
			return fmt.Errorf("line %d: this token stands above already", n)
		}
		all = append(all, t)
	}
	if len(all) == 0 {
		return errors.New("it has no tokens: write \"operate TOKEN\" into it")
	}
	was := a.tokens.Load()
	if was != nil && slices.Equal(was.all, all) {
		return nil
	}
	now := &tokens{all: all}
	now.inForce, now.replaced = context.WithCancel(context.Background())
	if a.tokens.Store(now); was != nil {
		was.replaced()
	}
	return nil
}

// Refused returns how many requests were refused, by reason: missing, wrong, role.
func (a *Access) Refused() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.refused)
}

// guard serves requests of operators who may do what they ask for.
func (a *Access) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens := a.tokens.Load()
		may, name, reason := a.identify(tokens, r)
		want := operate
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.URL.Path == playgroundPath
		if reads && !strings.HasPrefix(r.URL.Path, profilesPath) {
			want = read
		}
		switch {
		case may >= want:
			ctx, cancel := context.WithCancel(context.WithValue(r.Context(), tokenName{}, name))
			defer cancel()
			if tokens != nil {
				defer context.AfterFunc(tokens.inForce, cancel)()
			}
			h.ServeHTTP(w, r.WithContext(ctx))
		case may == read:
			a.count(refusedRole, r)
			refuse(w, http.StatusForbidden, "this takes the role operate; yours is read")
		default:
			a.count(reason, r)
			a.challenge(w, r, reason)
		}
	})
}

type tokenName struct{} // the key of its context's value

// identify returns the role of whoever sends a request, the name of the token, and the reason to refuse them if there
// is no role. A certificate and a token add up.
func (a *Access) identify(tokens *tokens, r *http.Request) (may role, name, reason string) {
	certified := r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	if certified {
		may = a.certified(r.TLS)
	} else if tokens == nil {
		return operate, "", ""
	}
	shown, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || tokens == nil {
		return may, "", refusedMissing
	}
	hash := sha256.Sum256([]byte(shown))
	found := token{}
	for _, t := range tokens.all { // all of them, so that it takes as long for any one
		if subtle.ConstantTimeCompare(t.hash[:], hash[:]) == 1 {
			found = t
		}
	}
	if found.role == nothing {
		return nothing, "", refusedWrong
	}
	return max(may, found.role), found.name, ""
}

// certified is the role of a client's verified certificate.
func (a *Access) certified(state *tls.ConnectionState) role {
	if len(a.operators) == 0 || slices.ContainsFunc(a.operators, func(name string) bool {
		return certs.HasName(state.VerifiedChains[0][0], name)
	}) {
		return operate
	}
	return read
}

// challenge refuses whoever has no role. Wrong tokens take time.
func (a *Access) challenge(w http.ResponseWriter, r *http.Request, reason string) {
	if reason == refusedWrong {
		source := limits.SourceOfContext(r.Context())
		if a.slowed.Take(source, 1) != "" {
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, "too many wrong tokens: try again later")
			return
		}
		defer a.slowed.Give(source, 1)
		select {
		case <-time.After(failureDelay):
		case <-r.Context().Done():
		}
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="edgelimit"`)
	refuse(w, http.StatusUnauthorized, "show a token of admin_tokens_file as Authorization: Bearer TOKEN (edgelimit: "+
		"--token-file), or a certificate")
}

// count counts a refused request, and logs wrong tokens once a minute.
func (a *Access) count(reason string, r *http.Request) {
	a.mu.Lock()
	a.refused[reason]++
	attempts := 0
	if reason == refusedWrong {
		a.unlogged++
		if now := time.Now(); now.Sub(a.logged) >= logEvery {
			attempts, a.unlogged, a.logged = a.unlogged, 0, now
		}
	}
	a.mu.Unlock()
	if attempts > 0 {
		a.log.Warn("wrong tokens at the admin listener", "attempts", attempts, "by", operatorOf(r).String())
	}
}
