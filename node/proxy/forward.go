package proxy

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// targetOf returns the request's target as it is forwarded: as the client sent it, without the scheme and host of an
// absolute one. It is "" if that cannot be, as for CONNECT.
func targetOf(r *http.Request) string {
	raw := r.RequestURI
	if r.URL.Host != "" && !strings.HasPrefix(raw, "/") {
		_, rest, found := strings.Cut(raw, "://")
		if !found || r.URL.Scheme != "http" && r.URL.Scheme != "https" {
			return ""
		}
		raw = rest[min(len(rest), strings.IndexAny(rest+"/", "/?#")):]
		if !strings.HasPrefix(raw, "/") {
			raw = "/" + raw
		}
	}
	if raw == "*" && r.Method == http.MethodOptions {
		return raw
	}
	// HTTP/2 can have a blank, which ends the target in HTTP/1.1.
	if r.Method == http.MethodConnect || raw == "" || raw[0] != '/' || strings.IndexByte(raw, ' ') >= 0 {
		return ""
	}
	return raw
}

// setTarget makes the URL's target raw, byte by byte. It returns false if that cannot be done.
func setTarget(u *url.URL, raw string) bool {
	path, query, asked := strings.Cut(raw, "?")
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = query, asked, "", ""
	if strings.HasPrefix(path, "//") { // as Opaque it would mean a host
		return u.EscapedPath() == path
	}
	u.Opaque = path
	return true
}

// forwardingNames are fields in which proxies tell servers about the client, in addition to all X-Forwarded-*.
var forwardingNames = []string{"Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip",
	"X-Cluster-Client-Ip", "X-Original-Method", "X-Original-Host", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Url"}

const forwardedPrefix = "X-Forwarded-"

// bareForwarding are the forwardingNames as bareName returns them.
var bareForwarding = func() map[string]bool {
	bare := make(map[string]bool)
	for _, name := range forwardingNames {
		bare[string(bareName(nil, name))] = true
	}
	return bare
}()

// maxBare is longer than each of bareForwarding.
const maxBare = 24

// bareName appends the beginning of a field's name in small letters to dst, without what is no letter or digit.
func bareName(dst []byte, name string) []byte {
	for i := 0; i < len(name) && len(dst) < maxBare; i++ {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			dst = append(dst, c|0x20)
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			dst = append(dst, c)
		}
	}
	return dst
}

// isForwarding reports whether a field tells servers about the client and its request, or some server may take it for
// one that does: CGI, WSGI and PHP read X_Forwarded_For and X.Forwarded.For as X-Forwarded-For.
func isForwarding(name string) bool {
	var room [maxBare]byte
	bare := bareName(room[:0], name)
	const prefix = "xforwarded"
	return len(bare) > len(prefix) && string(bare[:len(prefix)]) == prefix || bareForwarding[string(bare)]
}

// isSpelledOut reports whether a forwarding field has its usual name, which a trusted proxy uses.
func isSpelledOut(name string) bool {
	rest, ok := strings.CutPrefix(name, forwardedPrefix)
	return ok && strings.Trim(rest, "-") != "" && len(bareName(nil, rest))+strings.Count(rest, "-") == len(rest) ||
		slices.Contains(forwardingNames, name)
}

// dropNamed removes the fields that Connection names, which are for this proxy alone, before anybody looks at them. Who
// forwarded a request is not for the client to remove.
func dropNamed(h http.Header) {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if name != "Upgrade" && name != "Te" && !isForwarding(name) {
				delete(h, name)
			}
		}
	}
}

// onlyWebSocket removes a request to switch to another protocol than WebSocket: within one such as h2c requests would
// reach the upstream without being seen. It reports whether the request is for a WebSocket.
func onlyWebSocket(r *http.Request) bool {
	asked := r.Header["Upgrade"]
	if asked == nil {
		return false
	}
	if len(asked) == 1 && strings.EqualFold(asked[0], "websocket") && r.Method == http.MethodGet &&
		r.ProtoMajor == 1 && r.ContentLength == 0 &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") {
		return true
	}
	delete(r.Header, "Upgrade")
	delete(r.Header, "Http2-Settings")
	return false
}

// rewrite makes the request that the upstream gets.
func (x *exchange) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.Host = in.Host
	out.Trailer = in.Trailer // its values come with the end of the body
	setTarget(out.URL, x.target)
	describeClient(out.Header, in, peerOf(in), x.trusted)
}

// peerOf is who sent the request; not valid on a Unix socket.
func peerOf(r *http.Request) netip.Addr {
	peer, _ := netip.ParseAddrPort(r.RemoteAddr)
	return peer.Addr().Unmap().WithZone("")
}

// describeClient sets the fields that tell the upstream about the client. What came in is kept only if the peer is
// trusted. The peer is not valid on a Unix socket.
func describeClient(out http.Header, in *http.Request, peer netip.Addr, trusted bool) {
	for name := range out {
		if isForwarding(name) && !(trusted && isSpelledOut(name)) {
			delete(out, name)
		}
	}
	scheme := "http"
	if in.TLS != nil {
		scheme = "https"
	}
	var text strings.Builder // one memory for all values
	text.Grow(128)
	since := func(start int) string { return text.String()[start:] }
	var prior, forwarded []string
	if trusted { // the reverse proxy has removed them
		prior, forwarded = in.Header["X-Forwarded-For"], in.Header["Forwarded"]
	}
	for _, line := range prior {
		text.WriteString(line)
		text.WriteString(", ")
	}
	node := "unknown"
	if peer.IsValid() {
		node = peer.String()
		text.WriteString(node)
	}
	if list := strings.TrimSuffix(since(0), ", "); list != "" {
		out["X-Forwarded-For"] = []string{list}
	}
	keep := func(name, value string) {
		if kept := in.Header[name]; trusted && len(kept) > 0 {
			out[name] = kept
		} else {
			out[name] = []string{value}
		}
	}
	keep("X-Forwarded-Host", in.Host)
	keep("X-Forwarded-Proto", scheme)
	start := text.Len()
	for _, line := range forwarded {
		text.WriteString(line)
		text.WriteString(", ")
	}
	text.WriteString("for=")
	if peer.Is6() {
		text.WriteString(`"[` + node + `]"`)
	} else {
		text.WriteString(node)
	}
	if isHost(in.Host) {
		text.WriteString(`;host="` + in.Host + `"`)
	}
	text.WriteString(";proto=" + scheme)
	out["Forwarded"] = []string{since(start)}
}

// isHost reports whether a host may stand in a quoted string.
func isHost(host string) bool { return host != "" && !strings.ContainsAny(host, "\"\\") }
