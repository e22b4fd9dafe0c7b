package bans

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"

	"github.com/edgelimit/edgelimit/node/bans/banname"
)

// write writes the file of an export. now is the time from which timeouts are counted; records are of JSON alone.
func (x *Export) write(out io.Writer, all []entry, records []Ban, now int64) error {
	w := bufio.NewWriterSize(out, 64<<10)
	switch x.Format {
	case "nftables":
		x.header(w, "nft -f FILE")
		x.writeSets(w, all, now)
	case "ipset":
		x.header(w, "ipset restore -file FILE")
		x.writeIPSets(w, all, now)
	case "haproxy":
		x.header(w, "http-request deny deny_status 429 if { src -f FILE }")
		writeLines(w, "", all, "")
	case "nginx":
		x.header(w, "include FILE;")
		writeLines(w, "deny ", all, ";")
	case "json":
		writeJSON(w, records)
	}
	return w.Flush() // the first error of any write
}

func (x *Export) header(w *bufio.Writer, use string) {
	fmt.Fprintf(w, "# Banned addresses, written by edgelimit: do not edit. Use: %s\n", use)
}

func writeLines(w *bufio.Writer, before string, all []entry, after string) {
	for i := range all {
		_, _ = w.WriteString(before)
		appendAddress(w, all[i].prefix())
		_, _ = w.WriteString(after)
		_ = w.WriteByte('\n')
	}
}

// appendAddress writes a prefix, and a single address without its length.
func appendAddress(w *bufio.Writer, p netip.Prefix) {
	if p.IsSingleIP() {
		_, _ = w.Write(p.Addr().AppendTo(w.AvailableBuffer()))
	} else {
		_, _ = w.Write(p.AppendTo(w.AvailableBuffer()))
	}
}

// nftSets are the sets of nftables: single addresses of IPv4 and whole /64 of IPv6, and all other prefixes. The first
// two are hashes: where 100,000 prefixes take nft a second to add one more to, it is milliseconds there.
var nftSets = [...]struct{ suffix, spec string }{
	{"_v4", "type ipv4_addr; flags timeout;"},
	{"_v6", "type ipv6_addr; flags timeout;"},
	{"_v4_net", "type ipv4_addr; flags interval, timeout;"},
	{"_v6_net", "type ipv6_addr; flags interval, timeout;"},
}

// setOf is the place of an entry's set in nftSets.
func setOf(e *entry) int {
	switch {
	case banname.IsIPv4(e.key) && e.bits == 32:
		return 0
	case banname.IsIPv4(e.key):
		return 2
	case e.bits == banname.MaxAddressBits:
		return 1
	}
	return 3
}

// writeSets writes a script of nft that makes the sets if they are missing, and sets their content, all at once.
func (x *Export) writeSets(w *bufio.Writer, all []entry, now int64) {
	x.declareSets(w, true)
	x.writeElements(w, "add", all, now)
}

// declareSets writes statements that make the sets if they are missing, and empty them if flush.
func (x *Export) declareSets(w *bufio.Writer, flush bool) {
	fmt.Fprintf(w, "add table inet %s\n", x.table())
	for _, set := range nftSets {
		name := x.table() + " " + x.set() + set.suffix
		fmt.Fprintf(w, "add set inet %s { %s }\n", name, set.spec)
		if flush {
			fmt.Fprintf(w, "flush set inet %s\n", name)
		}
	}
}

// elementsAtOnce is how many elements one statement of nft has.
const elementsAtOnce = 1000

// writeElements writes statements that add entries, with their timeouts, or delete them.
func (x *Export) writeElements(w *bufio.Writer, verb string, all []entry, now int64) {
	for len(all) > 0 {
		n, set := 0, setOf(&all[0])
		for n < min(len(all), elementsAtOnce) && setOf(&all[n]) == set {
			n++
		}
		fmt.Fprintf(w, "%s element inet %s %s%s { ", verb, x.table(), x.set(), nftSets[set].suffix)
		for i := range all[:n] {
			if i > 0 {
				_, _ = w.WriteString(", ")
			}
			p := all[i].prefix()
			if set == 1 {
				p = netip.PrefixFrom(p.Addr(), p.Addr().BitLen()) // its first address stands for all
			}
			appendAddress(w, p)
			if verb == "add" {
				_, _ = w.WriteString(" timeout ")
				writeTimeout(w, time.Duration(all[i].ends-now))
			}
		}
		_, _ = w.WriteString(" }\n")
		all = all[n:]
	}
}

// writeTimeout writes a duration as nft reads it, rounded up to milliseconds.
func writeTimeout(w *bufio.Writer, d time.Duration) {
	ms := max(1, int64((d+time.Millisecond-1)/time.Millisecond))
	b := strconv.AppendInt(w.AvailableBuffer(), ms/1000, 10)
	b = append(b, 's')
	if ms %= 1000; ms > 0 {
		b = append(strconv.AppendInt(b, ms, 10), "ms"...)
	}
	_, _ = w.Write(b)
}

// maxIPSetTimeout is the longest timeout of ipset, in seconds: a ban that lasts longer is given it anew whenever the
// file is written.
const maxIPSetTimeout = 2147483

// maxIPSetElements is the bound of a set, which takes memory only as it fills. It never changes: ipset refuses to
// create a set that exists with another. A prefix may be two elements, see halves.
const maxIPSetElements = 2 * MaxBans

// writeIPSets writes what ipset restore takes: the sets are filled apart, and swapped.
func (x *Export) writeIPSets(w *bufio.Writer, all []entry, now int64) {
	for v, kind := range [2]string{"inet", "inet6"} {
		create := fmt.Sprintf("hash:net family %s maxelem %d timeout 0 -exist\n", kind, maxIPSetElements)
		set := x.set() + [2]string{"_v4", "_v6"}[v]
		next := set + "_n"
		fmt.Fprintf(w, "create %s %screate %s %sflush %s\n", set, create, next, create, next)
		for i := range all {
			e := &all[i]
			if banname.IsIPv4(e.key) != (v == 0) {
				continue
			}
			seconds := min(int64(time.Duration(e.ends-now+int64(time.Second)-1)/time.Second), maxIPSetTimeout)
			for _, p := range halves(e.prefix()) {
				fmt.Fprintf(w, "add %s ", next)
				appendAddress(w, p)
				fmt.Fprintf(w, " timeout %d -exist\n", max(1, seconds))
			}
		}
		fmt.Fprintf(w, "swap %s %s\ndestroy %s\n", next, set, next)
	}
}

// halves returns a prefix, and one of no bits, which ipset has no word for, as two.
func halves(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	low := netip.PrefixFrom(p.Addr(), 1)
	if p.Addr().Is4() {
		return []netip.Prefix{low, netip.PrefixFrom(netip.AddrFrom4([4]byte{128}), 1)}
	}
	return []netip.Prefix{low, netip.PrefixFrom(netip.AddrFrom16([16]byte{128}), 1)}
}

// writeJSON writes {"bans":[...]}, a ban on each line.
func writeJSON(w *bufio.Writer, records []Ban) {
	_, _ = w.WriteString(`{"bans":[`)
	separator := "\n"
	for i := range records {
		_, _ = w.WriteString(separator)
		text, _ := json.Marshal(records[i]) // of texts and times: no error
		_, _ = w.Write(text)
		separator = ",\n"
	}
	_, _ = w.WriteString("\n]}\n")
}
