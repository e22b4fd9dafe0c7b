package actions

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Senders remembers who seems to be a proxy and is not configured as one: all visitors behind it count as one client. A
// sender is a peer whose requests name a client in X-Forwarded-For, Forwarded or X-Real-IP, where nothing reads that:
// the peer is not in Config.TrustedProxies, or Config.ClientHeader is another one.
//
// A sender with a public address may be a client that forges the header, or an office: it counts once it named two
// clients with public addresses. Senders of one network, an IPv4 /24 or an IPv6 /64, are one. The memory is bounded.
// Senders is safe for concurrent use.
type Senders struct {
	warn  func(Sender)
	total atomic.Uint64

	mu    sync.Mutex
	known map[netip.Prefix]*sender // the zero prefix: all peers of Unix sockets
	warns int
}

// Sender is a probable proxy.
type Sender struct {
	Peer    netip.Prefix // an address, or its network if several of its addresses sent such requests; not valid: Unix
	Trusted bool         // is in Config.TrustedProxies
	Header  string       // that it sends and that is not read
	Set     string       // what Config.ClientHeader would have to be; empty: it is
}

type sender struct {
	Sender
	visitor netip.Addr // the first that it named
	counts  bool
	last    time.Time
}

const (
	maxSenders    = 64
	maxSenderLogs = 16 // in the life of the process
	senderLasts   = 10 * time.Minute
)

// NewSenders returns an empty memory. warn is called for each new sender, up to 16 times.
func NewSenders(warn func(Sender)) *Senders {
	return &Senders{warn: warn, known: make(map[netip.Prefix]*sender)}
}

// Observe has s remember the proxies among the peers of a's requests, unless Config.Senders is set. It is called before
// the first request.
func (a *Actions) Observe(s *Senders) {
	if a.senders == nil {
		a.senders = s
	}
}

// Total returns the number of requests that named a client in a header that is not read.
func (s *Senders) Total() uint64 { return s.total.Load() }

// Recent returns the senders of the last ten minutes.
func (s *Senders) Recent(now time.Time) (all []Sender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.known {
		if known.counts && now.Sub(known.last) < senderLasts {
			all = append(all, known.Sender)
		}
	}
	slices.SortFunc(all, func(a, b Sender) int { return a.Peer.Compare(b.Peer) })
	return all
}

// Text says what is wrong.
func (s Sender) Text() string {
	who := "the Unix socket"
	if s.Peer.IsValid() {
		who = s.peer()
	}
	why := "that address is not in trusted_proxies"
	if s.Trusted {
		why = "client_header names another one"
	}
	return fmt.Sprintf("requests from %s carry %s, but %s: all its visitors count as one client", who, s.Header, why)
}

// Log warns of the sender.
func (s Sender) Log(log *slog.Logger) {
	log.Warn("a probable proxy is not configured: its visitors count as one client", "warning", s.Text(), "do", s.Do())
}

// Do says what to set.
func (s Sender) Do() string {
	var lines []string
	flag := ""
	if !s.Trusted {
		lines = append(lines, fmt.Sprintf("`trusted_proxies: [%s]`", s.peer()))
		flag = fmt.Sprintf(" (edgelimit: --trusted-proxy %s)", s.peer())
	}
	if s.Set != "" {
		lines = append(lines, fmt.Sprintf("`client_header: %s`", s.Set))
		flag = ""
	}
	return fmt.Sprintf("add %s to requests%s if it is yours", strings.Join(lines, " and "), flag)
}

func (s Sender) peer() string {
	switch {
	case !s.Peer.IsValid():
		return UnixPeers
	case s.Peer.IsSingleIP():
		return s.Peer.Addr().String()
	}
	return s.Peer.String()
}

// note takes notice of a request that names a visitor in a header that is not read.
func (s *Senders) note(peer, visitor netip.Addr, found Sender) {
	s.total.Add(1)
	network := netip.Prefix{}
	if peer.IsValid() {
		bits := 64
		if peer.Is4() {
			bits = 24
		}
		network, _ = peer.Prefix(bits) // no address is shorter
		found.Peer = netip.PrefixFrom(peer, peer.BitLen())
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[network]
	if known == nil || known.Trusted != found.Trusted {
		s.makeRoom()
		known = &sender{Sender: found, visitor: visitor, counts: !isPublic(peer)}
		s.known[network] = known
		if known.counts {
			s.log(known)
		}
	}
	if known.last = now; known.Peer != found.Peer {
		known.Peer = network
	}
	if !known.counts && isPublic(known.visitor) && isPublic(visitor) && known.visitor != visitor {
		known.counts = true
		s.log(known)
	}
	if !isPublic(known.visitor) {
		known.visitor = visitor
	}
}

func (s *Senders) log(known *sender) {
	if s.warns++; s.warns <= maxSenderLogs {
		s.warn(known.Sender)
	}
}

// makeRoom forgets the sender that was silent for the longest, if there are too many.
func (s *Senders) makeRoom() {
	if len(s.known) < maxSenders {
		return
	}
	var oldest netip.Prefix
	var at time.Time
	for network, known := range s.known {
		if at.IsZero() || known.last.Before(at) {
			oldest, at = network, known.last
		}
	}
	delete(s.known, oldest)
}

// shared is the address space between carriers and their customers (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// isPublic reports whether an address may be that of anybody's machine on the Internet.
func isPublic(addr netip.Addr) bool {
	return addr.IsGlobalUnicast() && !addr.IsPrivate() && !shared.Contains(addr)
}

// clientHeaders are those that proxies name clients in, as net/http writes them.
var clientHeaders = [...]struct{ name, field string }{
	{XForwardedFor, http.CanonicalHeaderKey(XForwardedFor)},
	{Forwarded, http.CanonicalHeaderKey(Forwarded)},
	{XRealIP, http.CanonicalHeaderKey(XRealIP)},
}

// observe takes notice of a header that names a client, or one of others that describe the original request, and is not
// read.
func (a *Actions) observe(r *http.Request, trusted bool, others ...string) {
	if a.senders == nil || trusted && len(r.Header[a.proxies.field]) > 0 {
		return
	}
	for _, h := range clientHeaders {
		if len(r.Header[h.field]) == 0 {
			continue
		}
		peer, _ := peerOf(r)
		found := Sender{Trusted: trusted, Header: h.field}
		if h.name != a.proxies.header {
			found.Set = h.name
		}
		named := proxies{prefixes: a.proxies.prefixes, header: h.name, field: h.field}
		a.senders.note(peer, named.behind(peer, r.Header), found)
		return
	}
	for _, field := range others {
		if !trusted && len(r.Header[field]) > 0 {
			peer, _ := peerOf(r)
			a.senders.note(peer, netip.Addr{}, Sender{Header: field})
			return
		}
	}
}
