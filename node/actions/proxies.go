package actions

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Headers that name the client. Only one of them is read: proxies that write one forward the others as clients forged
// them.
const (
	XForwardedFor = "x-forwarded-for"
	Forwarded     = "forwarded" // RFC 7239
	XRealIP       = "x-real-ip"
)

// UnixPeers in a list of trusted proxies means all peers of Unix sockets.
const UnixPeers = "unix"

// proxies are those whose word is taken for who a client is. The zero value trusts nobody. It is immutable.
type proxies struct {
	prefixes []netip.Prefix
	unix     bool
	header   string // XForwardedFor, Forwarded or XRealIP
	field    string // the header as net/http writes it
}

// newProxies returns the proxies at the addresses, prefixes of addresses, and UnixPeers. An empty header is
// XForwardedFor.
func newProxies(trusted []string, header string) (proxies, error) {
	p := proxies{header: cmp.Or(header, XForwardedFor)}
	p.field = http.CanonicalHeaderKey(p.header)
	for _, t := range trusted {
		if t == UnixPeers {
			p.unix = true
			continue
		}
		prefix, err := rules.ParsePrefix(t)
		if err != nil {
			return proxies{}, fmt.Errorf("trusted_proxies: %q: want an address, a prefix such as 10.0.0.0/8, or %s", t,
				UnixPeers)
		}
		p.prefixes = append(p.prefixes, prefix)
	}
	return p, nil
}

// trusts reports whether the peer, as peerOf returns it, is a trusted proxy.
func (p *proxies) trusts(peer netip.Addr, unix bool) bool {
	if unix {
		return p.unix
	}
	return p.holds(peer)
}

// Client returns the address of who made r, which is not valid where it is unknown, and whether who sent it is a
// trusted proxy, so that its headers are believed.
func (a *Actions) Client(r *http.Request) (client netip.Addr, trusted bool) {
	return a.proxies.client(r)
}

// Trusts reports whether an address is that of a trusted proxy.
func (a *Actions) Trusts(addr netip.Addr) bool { return a.proxies.holds(addr) }

func (p *proxies) holds(addr netip.Addr) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// client returns the address of who made the request, and whether the sender is a trusted proxy. It begins with the
// sender. While that is a trusted proxy, it goes on to the address that the proxy's header names: from the right, where
// each proxy appends, to the left. It never reads what no trusted proxy wrote. A trusted proxy that wrote no address is
// itself the client. The address is invalid where the request came through a Unix socket and no address is known.
func (p *proxies) client(r *http.Request) (client netip.Addr, trusted bool) {
	peer, unix := peerOf(r)
	if !p.trusts(peer, unix) {
		return peer, false
	}
	return p.behind(peer, r.Header), true
}

// behind returns the client that the headers of a trusted peer name.
func (p *proxies) behind(client netip.Addr, h http.Header) netip.Addr {
	if p.header == XRealIP {
		if lines := h[p.field]; len(lines) == 1 {
			if addr, ok := parseHop(strings.TrimSpace(lines[0])); ok {
				return addr
			}
		}
		return client
	}
	next := lastOfList
	if p.header == Forwarded {
		next = lastForwarded
	}
	for _, line := range slices.Backward(h[p.field]) {
		for rest := line; rest != ""; {
			var hop string
			if hop, rest = next(rest); hop == "" {
				continue
			}
			addr, ok := parseHop(hop)
			if !ok {
				return client
			}
			if client = addr; !p.holds(addr) {
				return client
			}
		}
	}
	return client
}

// peerOf is who sent the request. The peers of a Unix socket have no address.
func peerOf(r *http.Request) (addr netip.Addr, unix bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, r.RemoteAddr == "" || r.RemoteAddr[0] == '@' || r.RemoteAddr[0] == '/'
	}
	return peer.Addr().Unmap().WithZone(""), false
}

// lastOfList splits the last member off a list, without the blanks around it. An empty member means nothing.
func lastOfList(list string) (last, rest string) {
	i := strings.LastIndexByte(list, ',')
	return strings.Trim(list[i+1:], " \t"), list[:max(i, 0)]
}

// parseHop reads an address, with or without a port. Anything else, as a name or one with a zone, is no address.
func parseHop(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	if n := len(text) - 1; err != nil && n > 0 && text[0] == '[' && text[n] == ']' {
		if addr, err = netip.ParseAddr(text[1:n]); addr.Is4() {
			return addr, false
		}
	} else if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(text)
		addr = withPort.Addr()
	}
	return addr.Unmap(), err == nil && addr.Zone() == ""
}

// unnamed is a hop without an address.
const unnamed = "unknown"

// lastForwarded splits the last element off a Forwarded header (RFC 7239) and returns its "for" parameter: unnamed if
// that is missing or malformed, "" if the element is empty. It reads from the right: what a client sent is to the left
// of what proxies appended, and must not change its meaning, for example by an open quote.
func lastForwarded(line string) (hop, rest string) {
	i := lastOutside(line, ',')
	element := strings.Trim(line[i+1:], " \t")
	rest = line[:max(i, 0)]
	for given := false; element != ""; {
		i := lastOutside(element, ';')
		name, value, _ := strings.Cut(strings.Trim(element[i+1:], " \t"), "=")
		element = element[:max(i, 0)]
		hop = cmp.Or(hop, unnamed)
		if strings.EqualFold(name, "for") {
			if given {
				return unnamed, rest
			}
			given, hop = true, cmp.Or(unquote(value), unnamed)
		}
	}
	return hop, rest
}

// lastOutside returns where the last c stands that is not within quotes, as seen from the end; -1 if there is none.
func lastOutside(s string, c byte) int {
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == '"' && !(quoted && escaped(s, i)):
			quoted = !quoted
		case s[i] == c && !quoted:
			return i
		}
	}
	return -1
}

// escaped reports whether an odd number of backslashes stands before a place.
func escaped(s string, at int) bool {
	return (at-len(strings.TrimRight(s[:at], `\`)))%2 == 1
}

// unquote returns the text of a value, with or without quotes; nothing if its quotes do not fit.
func unquote(value string) string {
	inner, opened := strings.CutPrefix(value, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	if opened != closed || strings.ContainsAny(inner, `"\`) { // no address needs an escape
		return ""
	}
	return inner
}
