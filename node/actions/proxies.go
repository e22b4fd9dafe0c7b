package actions

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/edgelimit/edgelimit/node/rules"
)

// Headers that tell who a client is. Only one of them is looked at: proxies that write one pass the others on as clients made them up.
const (
	XForwardedFor = "x-forwarded-for"
	Forwarded     = "forwarded" // RFC 7239
	XRealIP       = "x-real-ip"
)

// ClientHeaders returns the names that a configuration may choose from, the default first.
func ClientHeaders() []string { return []string{XForwardedFor, Forwarded, XRealIP} }

// UnixPeers in a list of trusted proxies stands for whoever connects through a Unix socket.
const UnixPeers = "unix"

// Proxies are those whose word is taken for who a client is. The zero value trusts nobody. It is immutable.
type Proxies struct {
	prefixes []netip.Prefix
	unix     bool
	header   string
}

// NewProxies returns the proxies at the addresses, prefixes of addresses, and UnixPeers; header is one of ClientHeaders, empty for the
// default. The error says everything that is wrong.
func NewProxies(trusted []string, header string) (Proxies, error) {
	p := Proxies{header: header}
	if header == "" {
		p.header = XForwardedFor
	}
	if !slices.Contains(ClientHeaders(), p.header) {
		return Proxies{}, fmt.Errorf("client_header: %q, want one of %s", header, strings.Join(ClientHeaders(), ", "))
	}
	for _, t := range trusted {
		if t == UnixPeers {
			p.unix = true
			continue
		}
		prefix, err := rules.ParsePrefix(t)
		if err != nil {
			return Proxies{}, fmt.Errorf("trusted_proxies: %q: want an address, a prefix such as 10.0.0.0/8, or %s", t, UnixPeers)
		}
		p.prefixes = append(p.prefixes, prefix)
	}
	return p, nil
}

// trusts reports whether the peer, as peerOf tells it, is a trusted proxy, so that the headers of what it sends are that proxy's.
func (p *Proxies) trusts(peer netip.Addr, unix bool) bool {
	if unix {
		return p.unix
	}
	return p.holds(peer)
}

func (p *Proxies) holds(addr netip.Addr) bool {
	for _, prefix := range p.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// Client returns the address of who made the request. It begins with the sender, and as long as that is a trusted proxy goes on to whom
// that one heard it from, which its header says: from the right, where each proxy appends, to the left. What no trusted proxy
// wrote is never looked at. Where a trusted proxy wrote what is no address, it stays the client itself. The result is invalid where the
// request came through a Unix socket and no address is known.
func (p *Proxies) Client(r *http.Request) netip.Addr {
	peer, unix := peerOf(r)
	if !p.trusts(peer, unix) {
		return peer
	}
	return p.behind(peer, r.Header)
}

// behind is whom a trusted peer speaks for, as its headers say.
func (p *Proxies) behind(client netip.Addr, h http.Header) netip.Addr {
	if p.header == XRealIP {
		if addr, ok := parseHop(strings.TrimSpace(only(h["X-Real-Ip"]))); ok {
			return addr
		}
		return client
	}
	lines, next := h["X-Forwarded-For"], lastOfList
	if p.header == Forwarded {
		lines, next = h["Forwarded"], lastForwarded
	}
	for _, line := range slices.Backward(lines) {
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
	if err != nil {
		if inner, bracketed := strings.CutPrefix(text, "["); bracketed && strings.HasSuffix(inner, "]") {
			addr, err = netip.ParseAddr(inner[:len(inner)-1])
			if err == nil && !addr.Is6() {
				return netip.Addr{}, false
			}
		} else {
			var withPort netip.AddrPort
			withPort, err = netip.ParseAddrPort(text)
			addr = withPort.Addr()
		}
	}
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}
