package browser

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

//go:embed audit.js
var audit string

const live = `document.querySelector("#live").dataset.state === "live"`

// shows is true when the text of an element has a part.
func shows(selector, part string) string {
	return fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q)", selector, part)
}

// A node that is killed is seen to go and to come back, in words, on the map and in the events; so is who is denied.
func TestNodeGoesAndComesBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu-west-1", "eu-west-2", "ap-south-1", "us-east-1")
	b := open(t, c.url("eu-west-1"))
	b.await("live", live)
	b.await("all nodes", `document.querySelectorAll("#members tbody tr").length === 4 && `+
		shows("#map", "us-east-1")+` && `+shows("#sentences", "All is well"))
	b.await("counts arrive", `document.querySelector("#map .link.good") && !document.querySelector("#map .link.bad")`)
	deny(t, c.nodes["eu-west-1"].Node)
	defer c.busy()()
	b.await("who is denied", shows("#top", "login")+" && "+shows("#top", "45")+" && "+shows("#rules", "5 in 10 s"))

	c.links.Partition("us-east")
	b.await("the region is cut off, in words", shows("#sentences", "us-east")+" && "+shows("#sentences", "What to do")+
		" && "+shows("#members", "cut off since")+" && "+shows("#health", "degraded"))
	b.await("on the map", `document.querySelector("#map .link.bad") && `+
		`document.querySelector("#map svg").getAttribute("aria-label").includes("us-east: cut off since")`)
	b.await("in the events", shows("#events", "cannot be reached"))
	b.audited()
	if err := c.nodes["us-east-1"].stop(); err != nil {
		t.Error(err)
	}
	c.links.Heal()
	c.start("us-east-1")
	b.await("it is back", `document.querySelector("#map .link.good") && !document.querySelector("#map .link.bad") && `+
		shows("#sentences", "All is well"))
	b.clean()
}

// deny asks 50 times for what is allowed five times.
func deny(t *testing.T, n *node.Node) {
	t.Helper()
	for range 50 {
		if _, err := n.Take(t.Context(), node.Request{Rule: "login", Identity: "192.0.2.1"}); err != nil {
			t.Fatal(err)
		}
	}
}

// While its node is away a page says since when it is not live. It follows the node that comes back. While it is hidden
// it asks for nothing, and holds no connection.
func TestPageReconnects(t *testing.T) {
	c := newCluster(t, "eu-west-1")
	b := open(t, c.url("eu-west-1"))
	b.await("live", live)
	if !serving() {
		t.Error("no goroutine serves the page")
	}
	evaluate[bool](b, `Object.defineProperty(document, "hidden", {value: true, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange"))`)
	b.await("paused", shows("#live", "paused while hidden"))
	testkit.Eventually(t, "no goroutine without viewers", func() bool { return !serving() })
	evaluate[bool](b, `delete document.hidden, document.dispatchEvent(new Event("visibilitychange"))`)
	b.await("live again", live)
	if err := c.nodes["eu-west-1"].stop(); err != nil {
		t.Error(err)
	}
	b.await("not live", `/^not live since \d\d:\d\d:\d\d: /.test(document.querySelector("#live").textContent)`)
	c.start("eu-west-1")
	b.await("live with the next boot", live)
}

// serving reports whether a goroutine of this process serves a page's stream.
func serving() bool {
	stacks := make([]byte, 4<<20)
	return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*statusAPI).serveStatus"))
}

// The burst of eight: every algorithm admits five, and from then on each falls as its own rules say.
func TestPlayground(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu-west-1")
	b := open(t, c.url("eu-west-1"))
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#playground")))
	b.await("six empty algorithms", `[...document.querySelectorAll("#algorithms article")].filter(
		(a) => a.textContent.includes("5 of 5 left. The next request passes at once.")).length === 6`)
	b.do(chromedp.Click(chromedp.CSS("#burst")))
	b.await("the engine's answer", `document.querySelector("#outcome").textContent === "8 requests: " +
		["Fixed window", "Sliding window", "Sliding log", "Token bucket", "Leaky bucket", "Leaky queue"].map(
		(name) => name + " admits 5").join(", ") + "."`)
	b.await("denied requests in every window", `[...document.querySelectorAll("#algorithms article")].slice(0, 3).every(
		(a) => a.querySelectorAll("circle.admitted").length === 5 && a.querySelectorAll("path.denied").length === 3)`)
	b.await("the bucket leaks one, which passes then", shows("#leaky_bucket", "1 of 5 left. The next request passes"))
	b.await("the sliding log does not", shows("#sliding_log", "0 of 5 left"))
	b.do(chromedp.Click(chromedp.CSS("#reset")))
	b.await("anew", shows("#sliding_log", "5 of 5 left"))
	b.do(chromedp.SetValue(chromedp.CSS("#limit"), "51"), chromedp.Click(chromedp.CSS("#one")))
	b.await("the field refuses what is out of bounds", `document.querySelector("#limit").matches(":invalid") &&
		document.querySelector("#outcome").textContent === ""`)
	b.clean()
}

// audited holds that the page is usable for everybody at 390 and 1400 pixels, dark and light.
func (b *tab) audited() {
	b.t.Helper()
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#playground")), chromedp.Click(chromedp.CSS("#burst")))
	b.await("the playground", shows("#outcome", "admits 5"))
	for _, theme := range []string{"dark", "light"} {
		for _, width := range []int64{390, 1400} {
			b.show(width, theme)
			b.await("the map fits", `(map => map.scrollWidth <= map.clientWidth)(document.querySelector("#map"))`)
			for _, wrong := range evaluate[[]string](b, audit) {
				b.t.Errorf("%s, %d pixels: %s", theme, width, wrong)
			}
			b.screenshot(fmt.Sprintf("dashboard-%s-%d", theme, width))
		}
	}
}

// A page that is asked for a token shows why, sends the one that it gets, and keeps it in the tab alone.
func TestPageSendsToken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu-west-1")
	target, err := url.Parse(c.url("eu-west-1"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("Authorization") != "Bearer right" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"detail":"show a token"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	b := open(t, guarded.URL)
	t.Cleanup(guarded.Close)
	t.Cleanup(func() { b.do(chromedp.Navigate("about:blank")) })
	field := chromedp.CSS("#token-field")
	b.await("it is asked for", `document.activeElement.id === "token-field" && `+shows("#live", "show a token"))
	b.do(chromedp.SendKeys(field, "wrong"+kb.Enter))
	b.await("a wrong one is refused", shows("#token-problem", "show a token"))
	b.do(chromedp.SendKeys(field, "right"+kb.Enter))
	b.await("live", live+` && document.querySelector("#token").hidden`)
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#playground")), chromedp.Click(chromedp.CSS("#burst")))
	b.await("the playground", shows("#outcome", "admits 5"))
	if kept := evaluate[string](b, `JSON.stringify([localStorage, document.cookie, location.href])`); strings.Contains(
		kept, "right") {
		t.Errorf("the token is in %s", kept)
	}
}

// Keyboards reach everything, in the order of the page, and see where they are. The switch changes the theme.
func TestPageByKeyboard(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "eu-west-1")
	b := open(t, c.url("eu-west-1"))
	b.await("live", live)
	var order []string
	for range 40 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order = append(order, evaluate[string](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e);
			const name = e.id || e.getAttribute("aria-labelledby") || e.textContent.trim();
			return e === document.body ? "" : s.outlineStyle === "none" ? name + " without outline" : name;
		})()`))
		if order[len(order)-1] == "" {
			break
		}
	}
	want := "Skip to the status|Status|Rules|Events|Playground|theme|rules-h|members-h|top-h|events-h|burst|one|rate|" +
		"limit|window|reset|"
	if got := strings.Join(order, "|"); got != want {
		t.Errorf("the order is\n%s, want\n%s", got, want)
	}
	background := func() string { return evaluate[string](b, "getComputedStyle(document.body).backgroundColor") }
	light := background()
	b.do(chromedp.Click(chromedp.CSS("#theme")))
	if dark := background(); dark == light || evaluate[string](b, `document.querySelector("#theme").textContent`) !=
		"Theme: dark" {
		t.Errorf("the switch leaves %s as %s", light, dark)
	}
	b.clean()
}
