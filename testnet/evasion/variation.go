package evasion

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// Client is the address that the request comes from.
const Client = "192.0.2.1"

// Bearer is the value of the plain request's Authorization.
var Bearer = "Bearer " + Token(`{"sub":"ann","n":7}`)

// Token is a JSON web token with the payload.
func Token(payload string) string {
	return "eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2lnbmF0dXJl"
}

// Variation is a form of the request.
type Variation struct {
	Name   string
	Method string
	Target string
	Host   string
	Lines  []string // of the header, without their ends; Host is none of them
	// Loses are the layers whose plain identity no server reads in this form, as its value is replaced and not
	// repeated. These are still to be charged, under whatever identity.
	Loses []string
}

// Plain is the request itself. Its layers are those of Layers.
func Plain() Variation {
	return Variation{
		Name: "plain", Method: "GET", Target: "/tenants/acme/login?page=2&token=t1", Host: "shop.example",
		Lines: []string{"Accept: */*", "X-Api-Key: k1", "Cookie: theme=dark; session=s1", "Authorization: " + Bearer},
	}
}

// with is a copy of the variation under a name.
func (v Variation) with(name string, change func(*Variation)) Variation {
	v.Lines, v.Loses, v.Name = slices.Clone(v.Lines), slices.Clone(v.Loses), name
	change(&v)
	return v
}

// set replaces the line of a header by others, in its place.
func (v *Variation) set(name string, lines ...string) {
	for i, line := range v.Lines {
		if strings.HasPrefix(line, name+":") {
			v.Lines = slices.Replace(v.Lines, i, i+1, lines...)
			return
		}
	}
	panic("evasion: no line " + name)
}

// Direct are the bytes of the request, on a connection of its own.
func (v Variation) Direct() []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", v.Method, v.Target, v.Host,
		lines(v.Lines))
}

// written are the headers that the proxy writes in the place of what the client sent.
var written = []string{"X-Forwarded-For", "X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri"}

// Asked are the bytes with which a proxy asks about it at the path of /v1/auth. The proxy writes X-Forwarded-For,
// -Method, -Host and -Uri, and hands on everything else as the client sent it, the query as well if the path ends with
// a question mark.
func (v Variation) Asked(path string) []byte {
	if strings.HasSuffix(path, "?") {
		_, query, _ := strings.Cut(v.Target, "?")
		path += query
	}
	handed := slices.DeleteFunc(slices.Clone(v.Lines), func(line string) bool {
		name, _, _ := strings.Cut(line, ":")
		return slices.ContainsFunc(written, func(w string) bool { return strings.EqualFold(w, name) })
	})
	handed = append(handed, "X-Forwarded-For: "+Client, "X-Forwarded-Method: "+v.Method, "X-Forwarded-Host: "+v.Host,
		"X-Forwarded-Uri: "+v.Target)
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: edgelimit\r\nConnection: close\r\n%s\r\n", path, lines(handed))
}

func lines(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, "\r\n") + "\r\n"
}
