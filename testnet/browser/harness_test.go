package browser

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/hashicorp/memberlist"

	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/node/rules/rulefile"
	"github.com/edgelimit/edgelimit/regions"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/netem"
)

var screenshots = flag.String("screenshots", "", "write screenshots into this directory")

// patience is how long a page may take to show something.
const patience = 30 * time.Second

const ruleFile = `
domain: edge
descriptors:
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 100, scope: global}
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 10s, requests_per_unit: 5, expose: identity}
`

// cluster is some nodes of two regions in this process, behind links that can be partitioned.
type cluster struct {
	t     *testing.T
	links *netem.Links
	store map[string]regions.Store
	// faults are what the stores are behind: each region has its own.
	faults map[string]*regionstest.Faulty
	nodes  map[string]*running
}

type running struct {
	*node.Node
	stop func() error
}

// newCluster starts nodes, whose names are their region and a number.
func newCluster(t *testing.T, ids ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, links: netem.NewLinks(1), store: make(map[string]regions.Store),
		faults: make(map[string]*regionstest.Faulty), nodes: make(map[string]*running)}
	for _, id := range ids {
		c.start(id)
	}
	return c
}

// url is the address of a node's dashboard.
func (c *cluster) url(id string) string { return "http://" + c.nodes[id].Addr("admin") + "/" }

// start starts a node, which joins through the others. The next boot of a node has its admin address.
func (c *cluster) start(id string) {
	c.t.Helper()
	region := id[:strings.LastIndexByte(id, '-')]
	set, err := rulefile.Parse("rules.yaml", []byte(ruleFile))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.store[region] == nil {
		c.faults[region] = regionstest.NewFaulty(func() regions.Store { return regions.NewEmbedded(0, time.Now) })
		c.store[region] = c.faults[region]
	}
	cfg := node.DefaultConfig()
	cfg.NodeID, cfg.Region, cfg.RuleSet, cfg.Store = id, region, set, c.store[region]
	cfg.HTTP, cfg.Health, cfg.Admin = "", "", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Gossip.LAN, cfg.Gossip.WAN, cfg.Gossip.Interval = "127.0.0.1:0", "127.0.0.1:0", 100*time.Millisecond
	cfg.WrapTransport = func(_ string, t memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		addr := fmt.Sprintf("127.0.0.1:%d", t.(interface{ GetAutoBindPort() int }).GetAutoBindPort())
		c.links.Register(addr, region)
		return netem.Wrap(t, addr, c.links)
	}
	if before := c.nodes[id]; before != nil {
		cfg.Admin = before.Addr("admin")
		delete(c.nodes, id)
	}
	for other, n := range c.nodes {
		if strings.HasPrefix(other, region) {
			cfg.Gossip.Join = append(cfg.Gossip.Join, n.Addr("lan"))
		}
		cfg.Gossip.Join = append(cfg.Gossip.Join, "wan:"+n.Addr("wan"))
	}
	n, err := node.New(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	r := &running{n, sync.OnceValue(func() error { cancel(); return <-ended })}
	c.nodes[id] = r
	c.t.Cleanup(func() {
		if err := r.stop(); err != nil {
			c.t.Errorf("node %s: %v", id, err)
		}
	})
}

// busy lets clients ask all nodes until stop is called, if screenshots were asked for. It returns after a minute.
func (c *cluster) busy() (stop func()) {
	if *screenshots == "" {
		return func() {}
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	nodes := slices.Collect(maps.Values(c.nodes))
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			<-time.After(30 * time.Millisecond)
			for _, n := range nodes {
				client := netip.AddrFrom4([4]byte{192, 0, 2, byte(rand.ExpFloat64() * 8)}).String()
				_, _ = n.Take(ctx, node.Request{Rule: "per_ip", Identity: client}) // a node may have stopped
				_, _ = n.Take(ctx, node.Request{Rule: "login", Identity: client})
			}
		}
	}()
	<-time.After(time.Minute)
	return func() { end(); <-ended }
}

// tab is a page in a browser, with what it logged and asked for.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	logged []string // console, exceptions, violations of the policy, requests that failed
	asked  []string // URLs
}

// browser is the one that all tests share.
var browser context.Context

// TestMain starts the browser, and stops it after the tests. They spend most of their time waiting for nodes to notice
// something: four do so at once, however few processors there are.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil {
		log.Fatal(err)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (status int) {
	profile, err := os.MkdirTemp("", "edgelimit-browser")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(profile) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(profile))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	var stop context.CancelFunc
	browser, stop = chromedp.NewContext(allocator)
	defer stop()
	if err := chromedp.Do(browser); err != nil {
		log.Printf("chromium does not start: %v", err)
		return 1
	}
	defer func() {
		if err := chromedp.Cancel(browser); err != nil {
			log.Printf("chromium does not stop: %v", err)
			status = 1
		}
	}()
	return m.Run()
}

// open opens a page in a tab of its own, 1400 pixels wide and light.
func open(t *testing.T, url string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx}
	console, requests := chromedp.Console(ctx), chromedp.Events(ctx, network.RequestWillBeSent)
	go func() {
		for m, err := range console {
			if err == nil {
				b.note(&b.logged, m.String())
			}
		}
	}()
	go func() {
		for e, err := range requests {
			if err == nil {
				b.note(&b.asked, e.Request.URL)
			}
		}
	}()
	b.show(1400, "light")
	b.do(chromedp.Navigate(url))
	return b
}

// show sets how wide the window is, in pixels, and whether the system prefers dark or light.
func (b *tab) show(width int64, theme string) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 900), func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		return chromedp.Void{}, err
	})
}

func (b *tab) note(list *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, text)
}

// seen returns a copy of what was noted.
func (b *tab) seen(list *[]string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(*list)
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v\nconsole: %q", err, b.seen(&b.logged))
	}
}

// evaluate returns the value of an expression in the page.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v\nconsole: %q", expression, err, b.seen(&b.logged))
	}
	return value
}

// await waits until an expression is true in the page.
func (b *tab) await(what, expression string) {
	b.t.Helper()
	ctx, stop := context.WithTimeout(b.ctx, patience)
	defer stop()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression,
		chromedp.WithPollingInterval(50*time.Millisecond))); err != nil {
		b.t.Fatalf("%s: %v\nthe page shows: %s\nconsole: %q", what, err,
			evaluate[string](b, "document.body.innerText"), b.seen(&b.logged))
	}
}

// clean holds that the page logged nothing, and asked nobody but its node.
func (b *tab) clean() {
	b.t.Helper()
	if logged := b.seen(&b.logged); len(logged) > 0 {
		b.t.Errorf("the console has %q", logged)
	}
	own := evaluate[string](b, "location.origin") + "/"
	for _, url := range b.seen(&b.asked) {
		if !strings.HasPrefix(url, own) && !strings.HasPrefix(url, "data:,") {
			b.t.Errorf("the page asks for %s", url)
		}
	}
}

// screenshot writes the complete page, if screenshots were asked for.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	evaluate[bool](b, "scrollTo(0, 0), true")
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		picture, err = reduce(picture)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// reduce returns a PNG of 256 colours: of those that differ by less than 8 in each channel, the most frequent one.
func reduce(file []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	pixels := make(map[color.RGBA]int)
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			pixels[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	var colours color.Palette
	taken := make(map[color.RGBA]bool)
	for _, c := range slices.SortedFunc(maps.Keys(pixels), func(a, b color.RGBA) int { return pixels[b] - pixels[a] }) {
		near := color.RGBA{R: c.R &^ 7, G: c.G &^ 7, B: c.B &^ 7}
		if !taken[near] && len(colours) < 256 {
			taken[near] = true
			colours = append(colours, c)
		}
	}
	reduced := image.NewPaletted(full.Bounds(), colours)
	draw.Draw(reduced, full.Bounds(), full, full.Bounds().Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduced)
	return out.Bytes(), err
}
