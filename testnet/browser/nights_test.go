package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/edgelimit/edgelimit/cmd/edgelimit/app"
	"github.com/edgelimit/edgelimit/node"
	"github.com/edgelimit/edgelimit/regions/regionstest"
	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// night is a trouble, as operators see it on one node or more.
type night struct {
	name    string
	trouble func(*cluster)
	views   []view
}

// view is what the page and the commands have to answer on a node within a minute of an operator's time.
type view struct {
	name     string   // of its section of NIGHTS.md and of its files
	asked    string   // the node
	words    []string // in the status of the page, and in the output of edgelimit status
	shown    []string // expressions in the page: rows and events
	commands []command
}

// command is a command line, its exit status and what of its output has to be there.
type command struct {
	line  string
	code  int
	wants []string
}

const flooder = "192.0.2.66"

var (
	whoAndRule = "rule login denies " + flooder + " most"
	howFar     = "over the limit: rule login"
	asksTop    = command{"top --once -n 3", 0, []string{flooder, "login"}}
)

var nights = []night{
	{"partition", func(c *cluster) { c.links.Partition("us-east") }, []view{
		{name: "partition", asked: "eu-west-1",
			words: []string{"region us-east is cut off since ", "its 1 node keeps about ",
				"look at the network to them", whoAndRule, howFar},
			shown: []string{shows("#members", "cut off since"), shows("#events", "cannot be reached")},
			commands: []command{
				{"status", 1, []string{"DEGRADED"}},
				{"members", 0, []string{"us-east-1", "cut off since "}},
				asksTop,
				{"inspect login " + flooder, 1, []string{"the node cannot see the whole cluster", "us-east-1",
					"(cut off: what arrived before)"}},
				{"events", 0, []string{"a region cannot be reached"}}}},
		{name: "this-side", asked: "us-east-1",
			words: []string{"this node is cut off from all other regions since ", "ap-south (1 node keeps about ",
				"look at this side first", "rules follow their on_failure", whoAndRule, howFar},
			commands: []command{{"status", 1, []string{"DEGRADED"}}}}}},
	{"flood", func(*cluster) {}, []view{
		{name: "flood", asked: "eu-west-1",
			words: []string{whoAndRule, "nothing: the rule does its work", howFar},
			shown: []string{shows("#sentences", "All is well: counts of all 3 regions arrive.")},
			commands: []command{
				{"status", 0, []string{"OK: "}},
				asksTop,
				{"inspect login " + flooder, 1, []string{"the next request is denied", "used "}}}}}},
	{"redis", func(c *cluster) { c.faults["eu-west"].Set(regionstest.Hangs) }, []view{
		{name: "redis", asked: "eu-west-1",
			words: []string{"the Redis of region eu-west does not answer", "no request waits for it", whoAndRule,
				howFar, "nothing, unless the limit must hold exactly"},
			shown: []string{shows("#health", "does not answer"),
				shows("#events", "the region's Redis does not answer")},
			commands: []command{
				{"status", 1, []string{"DEGRADED", "redis: does not answer"}},
				{"inspect login " + flooder, 1, []string{"redis: does not answer"}},
				{"events", 0, []string{"the region's Redis does not answer"}}}}}},
}

// An operator who has never met edgelimit learns in each trouble what is wrong, which region is cut off, who is denied
// most and by which rule, how far over the limit the cluster may be, and what to do: from the page alone and from the
// commands alone. The commands print what node/admin/NIGHTS.md quotes; with -screenshots DIR there are transcripts.
func TestNights(t *testing.T) {
	t.Parallel()
	quoted, unheld := quotes(t), quotes(t)
	for _, n := range nights {
		for _, v := range n.views {
			for _, cmd := range v.commands {
				delete(unheld, v.name+" "+cmd.line)
			}
		}
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			n.live(t, quoted)
		})
	}
	for what := range unheld {
		t.Errorf("NIGHTS.md quotes a command that no night runs: %s", what)
	}
}

// quotes returns the outputs that NIGHTS.md quotes, by view and command line. A heading begins with the name of
// its view.
func quotes(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("../../node/admin/NIGHTS.md")
	testkit.Must(t, err)
	quoted := make(map[string]string)
	name, of := "", ""
	for line := range strings.Lines(string(page)) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			name, _, _ = strings.Cut(strings.ToLower(heading), ":")
		} else if command, is := strings.CutPrefix(line, "$ edgelimit "); is {
			of = name + " " + strings.TrimSpace(command)
		} else if strings.HasPrefix(line, "```") {
			of = ""
		} else if of != "" {
			quoted[of] += line
		}
	}
	if len(quoted) < 8 {
		t.Fatalf("%d outputs found in NIGHTS.md", len(quoted))
	}
	return quoted
}

// live makes the trouble, and has it looked at.
func (n *night) live(t *testing.T, quoted map[string]string) {
	c := newCluster(t, "eu-west-1", "us-east-1", "ap-south-1")
	pages := make([]*tab, len(n.views))
	for i := range n.views {
		pages[i] = open(t, c.url(n.views[i].asked))
		pages[i].await("all is well", shows("#sentences", "All is well: counts of all 3 regions arrive."))
		pages[i].await("nobody is denied yet", shows("#top", "nobody was denied in the last minutes"))
	}
	defer c.flooded()()
	for _, page := range pages {
		page.await("the flood", shows("#sentences", whoAndRule))
	}
	n.trouble(c)
	for i := range n.views {
		n.views[i].look(t, pages[i], c.url(n.views[i].asked), quoted)
	}
}

// look reads the page and asks by the commands, of which it writes a transcript beside the screenshots.
func (v *view) look(t *testing.T, page *tab, url string, quoted map[string]string) {
	for _, words := range v.words {
		page.await("in words: "+words, shows("#sentences", words))
	}
	for _, expression := range v.shown {
		page.await(expression, expression)
	}
	page.await("who, by which rule", shows("#top", flooder)+" && "+shows("#top", "login"))
	var transcript strings.Builder
	for _, cmd := range v.commands {
		out := v.answer(t, url, cmd, quoted[v.name+" "+cmd.line])
		fmt.Fprintf(&transcript, "$ edgelimit %s\n%s", cmd.line, shortened(cmd, out))
	}
	if *screenshots == "" {
		return
	}
	page.screenshot("night-" + v.name)
	page.show(390, "dark")
	page.screenshot("night-" + v.name + "-390")
	file := filepath.Join(*screenshots, "night-"+v.name+".txt")
	testkit.Must(t, os.WriteFile(file, []byte(transcript.String()), 0o644))
}

// answer returns what a command prints once that has all that is wanted and quoted.
func (v *view) answer(t *testing.T, url string, cmd command, quoted string) (out string) {
	t.Helper()
	wants := cmd.wants
	if cmd.line == "status" {
		wants = slices.Concat(wants, v.words)
	}
	lacks := "?"
	defer func() {
		if lacks != "" {
			t.Logf("edgelimit %s lacks %s and prints\n%s", cmd.line, lacks, out)
		}
	}()
	testkit.Eventually(t, "edgelimit "+cmd.line+" answers", func() bool {
		var code int
		out, code = ask(t, url, cmd.line)
		lacks = testkit.Lacking(out, quoted)
		for _, want := range wants {
			if !strings.Contains(out, want) {
				lacks = want
			}
		}
		if code != cmd.code {
			lacks = fmt.Sprintf("status %d in place of %d", cmd.code, code)
		}
		return lacks == ""
	})
	return out
}

// shortened returns the output of a command; of events those that are wanted.
func shortened(cmd command, out string) string {
	if cmd.line != "events" {
		return out
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, cmd.wants[0]) {
			return line
		}
	}
	return ""
}

// ask runs a command against a node's admin listener.
func ask(t *testing.T, url, line string) (out string, code int) {
	t.Helper()
	var written strings.Builder
	a := app.New()
	a.Writer, a.ErrWriter = &written, &written
	words := strings.Fields(line)
	args := append([]string{"edgelimit", words[0], "--url", url}, words[1:]...)
	code = app.Run(t.Context(), a, args)
	return written.String(), code
}

// flooded has one client ask each node for far more than it may have, until stop is called.
func (c *cluster) flooded() (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for _, n := range c.nodes {
		clients.Go(func() {
			ticker := time.NewTicker(20 * time.Millisecond)
			defer ticker.Stop()
			for {
				_, _ = n.Take(ctx, node.Request{Rule: "login", Identity: flooder}) // denied, or the test has ended
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
	return func() { end(); clients.Wait() }
}
