package node

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/node/limits"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// aboutBudgets are requests for which a budget must have room: they hold some of it. Budgets of the gRPC API, of
// resets and of operators are filled by real requests in the tests of their packages, and here asked alone.
var aboutBudgets = map[string]string{
	"http streams":               checkOf("s", 0),
	"http headers":               "GET /v1/auth HTTP/1.1\r\nX-Long: " + strings.Repeat("x", 6<<10) + "\r\n\r\n",
	"http bodies":                checkOf("a", 8<<10),
	"resp commands":              "*2\r\n$4\r\nECHO\r\n$9000\r\n" + strings.Repeat("x", 9000) + "\r\n",
	"proxy streams":              "GET / HTTP/1.1\r\n\r\n",
	"proxy headers":              "GET / HTTP/1.1\r\nX-Long: " + strings.Repeat("x", 6<<10) + "\r\n\r\n",
	"proxy upstream_connections": "GET / HTTP/1.1\r\n\r\n",
	"health streams":             "", "health headers": "", "admin streams": "", "admin headers": "",
	"http resets": "", "proxy resets": "", "health resets": "", "admin resets": "",
	"grpc resets": "", "grpc headers": "", "grpc arrivals": "", "grpc watches": "", "grpc bidi_streams": "",
	"admin push_streams": "", "dashboard push_streams": "", "admin wrong_tokens": "",
	" queue": "", " queue_headers": "",
}

// checkOf is a check with a request_id, padded to so many bytes.
func checkOf(id string, pad int) string {
	body := `{"rule":"test/client","identity":"x","request_id":"` + id + `"}` + strings.Repeat(" ", pad)
	return fmt.Sprintf("POST /v1/check HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// fill has a source take all that it can of a budget, and returns how much that was.
func fill(b *limits.Budget, source netip.Addr) (took int64) {
	for step := max(1, b.Stats().Total/64); step > 0; step /= 2 {
		for b.Take(source, step) == "" {
			took += step
		}
	}
	return took
}

// Whatever budget one source fills, requests of others that need it are answered, and the refusals of that source stand
// in metric and log. A budget without a request here, or without a row in README.md, fails.
func TestOneSourceKeepsNobodyOut(t *testing.T) {
	log := new(testkit.Log)
	n := launchAllListeners(t, log)
	readme, err := os.ReadFile("README.md")
	testkit.Must(t, err)
	greedy, other := netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("198.51.100.7")
	for _, b := range n.budgets.All() {
		s := b.Stats()
		request, known := aboutBudgets[s.Door+" "+s.Name]
		row := regexp.MustCompile("(?m)^\\| `" + s.Name + "` \\|.*`" + s.Door + "`")
		if !known || !row.Match(readme) && s.Door != "" {
			t.Errorf("%s %s: no request in aboutBudgets, or no row in README.md", s.Door, s.Name)
		}
		took := fill(b, greedy)
		if took > s.Total/2+1 || took < s.Total/2-1 {
			t.Errorf("%s %s: one source takes %d of %d", s.Door, s.Name, took, s.Total)
		}
		if why := b.Room(other, max(1, s.Total/64)); why != "" {
			t.Errorf("%s %s: no room for others: %s", s.Door, s.Name, why)
		}
		if request != "" {
			answer := askFrom(t, n.Addr(s.Door), other, request)
			if !strings.HasPrefix(answer, "HTTP/1.1 200") && !strings.HasPrefix(answer, "$9000") {
				t.Errorf("%s %s: another source gets %q", s.Door, s.Name, answer)
			}
		}
		_, series := scrape(t, n.Addr("health"))
		metric := "edgelimit_budget_refused_total budget=" + s.Name + " door=" + s.Door + " reason=source"
		if series[metric] == 0 || !log.HasLine("a budget has no room", "budget="+s.Name+" ", "source=192.0.2.66") {
			t.Errorf("%s %s: metric %v; the log is %s", s.Door, s.Name, series[metric], log)
		}
		b.Give(greedy, took)
	}
}

func launchAllListeners(t testing.TB, log *testkit.Log) *running {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	cfg := withListeners(quiet(perClient))
	cfg.GRPC, cfg.RESP, cfg.Admin, cfg.Envoy = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", EnvoyForTests
	cfg.Proxy.Listen, cfg.Proxy.Upstreams = "127.0.0.1:0", []string{upstream.URL}
	cfg.Logger = log.Logger()
	for _, door := range []string{"http", "resp", "proxy"} {
		cfg.ProxyProtocol[door] = []string{"127.0.0.1"}
	}
	return launch(t, cfg).ready(t)
}

// BenchmarkBesideAFullBudget compares the median of what a request takes while another source holds all that it can of
// the budget with the median while the budget is free, each in turn: full/free.
func BenchmarkBesideAFullBudget(b *testing.B) {
	n := launchAllListeners(b, new(testkit.Log))
	greedy, other := netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("198.51.100.7")
	for _, budget := range n.budgets.All() {
		s := budget.Stats()
		request := aboutBudgets[s.Door+" "+s.Name]
		if request == "" {
			continue
		}
		b.Run(s.Door+" "+s.Name, func(b *testing.B) {
			var took [2][]time.Duration // while it is free, and full
			for i := 0; b.Loop(); i++ {
				var held int64
				if i%2 == 1 {
					held = fill(budget, greedy)
				}
				began := time.Now()
				askFrom(b, n.Addr(s.Door), other, request)
				took[i%2] = append(took[i%2], time.Since(began))
				budget.Give(greedy, held)
			}
			for i := range took {
				slices.Sort(took[i])
			}
			if len(took[1]) > 0 {
				free, full := took[0][len(took[0])/2], took[1][len(took[1])/2]
				b.ReportMetric(float64(full)/float64(free), "full/free")
			}
		})
	}
}

// askFrom sends a request behind a PROXY header that names its client, and returns the first line of the answer.
func askFrom(t testing.TB, addr string, client netip.Addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	testkit.Must(t, err)
	defer conn.Close()
	request = strings.Replace(request, "HTTP/1.1\r\n", "HTTP/1.1\r\nHost: node\r\nConnection: close\r\n", 1)
	_, err = io.WriteString(conn, fmt.Sprintf("PROXY TCP4 %s 192.0.2.99 9 80\r\n", client)+request)
	testkit.Must(t, err)
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line
}
