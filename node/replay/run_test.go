package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/counters"
	"github.com/edgelimit/edgelimit/node/rules"
)

const layered = `
domain: web
descriptors:
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 4}
  - key: remote_address
    value: 10.0.0.9
    rate_limit: {name: ours, unlimited: true}
  - key: path
    value: /login
    descriptors:
      - key: remote_address
        rate_limit: {name: login, window: 10s, requests_per_unit: 1}
  - key: path
    rate_limit: {name: per_path, unit: minute, requests_per_unit: 5}
  - key: api_key
    rate_limit: {name: per_key, unit: minute, requests_per_unit: 5}
  - key: user
    rate_limit: {name: per_user, unit: minute, requests_per_unit: 5}
`

// ruleOf is the report on the rule of that name.
func ruleOf(t *testing.T, o *Outcome, name string) *RuleReport {
	t.Helper()
	i := slices.IndexFunc(o.Rules, func(r RuleReport) bool { return r.Rule == name })
	if i < 0 {
		t.Fatalf("there is no rule %s", name)
	}
	return &o.Rules[i]
}

// Each rule is asked what it can meet, layers are charged all or nothing, and who is denied is told by rule.
func TestLayers(t *testing.T) {
	var log strings.Builder
	for i := range 3 { // of which login allows one: the others cost per_ip and per_path nothing
		log.WriteString(line("10.0.0.1", "/login", float64(i)))
	}
	for i := range 4 { // per_ip allows three more
		log.WriteString(line("10.0.0.1", "/a", float64(4+i)))
	}
	for i := range 5 { // unlimited by address, and per_path has two left
		log.WriteString(line("10.0.0.9", "/a", float64(10+i)))
	}
	r := replayed(t, options(parsed(t, layered)), log.String())
	if r.Denied != 2+1+3 || r.Unmatched != 0 || r.Requests != 12 {
		t.Errorf("%+v", r)
	}
	for _, want := range []struct {
		rule               string
		requests, denied   uint64
		identities, unsafe int
		worst              []Identity
	}{
		{"per_ip", 7, 1, 1, 1, []Identity{{"10.0.0.1", 7, 1, 0, 7}}},
		{"login", 3, 2, 1, 1, []Identity{{"10.0.0.1", 3, 2, 0, 3}}},
		{"per_path", 9, 3, 1, 1, []Identity{{"/a", 9, 3, 0, 9}}}, // half way to login there is no limit
		{"ours", 5, 0, 1, 0, []Identity{{"", 5, 0, 0, 0}}},
		{"per_user", 0, 0, 0, 0, []Identity{}},
	} {
		got := ruleOf(t, &r.Outcome, want.rule)
		if got.Requests != want.requests || got.Denied != want.denied || got.Identities != want.identities ||
			got.IdentitiesDenied != want.unsafe ||
			!slices.Equal(got.Worst, want.worst) ||
			got.Unknown != nil {
			t.Errorf("%s: %+v, want %+v", want.rule, got, want)
		}
	}
	if got := ruleOf(t, &r.Outcome, "ours"); !got.Unlimited || got.Peaks != nil || got.Suggested != nil {
		t.Errorf("an unlimited rule: %+v", got)
	}
	if got := ruleOf(t, &r.Outcome, "per_key"); !slices.Equal(got.Unknown, []string{"api_key"}) || got.Requests != 0 {
		t.Errorf("a rule whose key is no field: %+v", got)
	}
	if got := ruleOf(t, &r.Outcome, "login"); got.Limit != 1 || got.WindowSeconds != 10 || got.PeakSeconds != 10 ||
		got.Algorithm != "sliding_window" ||
		got.Place != "web/path=/login/remote_address" {
		t.Errorf("%+v", got)
	}
}

// A parent that a rule brings along is counted beside it, by what it has in common with it.
func TestElasticRulesBringTheirParents(t *testing.T) {
	set := parsed(t, `
domain: web
descriptors:
  - key: path
    rate_limit: {name: path, unit: minute, requests_per_unit: 5}
    descriptors:
      - key: remote_address
        rate_limit: {name: client, unit: minute, requests_per_unit: 2, mode: elastic, parent: path}
  - {key: method, value: GET, rate_limit: {name: get, unit: minute, requests_per_unit: 100}}
  - {key: remote_address, rate_limit: {name: agent, unit: minute, requests_per_unit: 2, mode: elastic, parent: get}}
`)
	o := options(set)
	o.Descriptors = []string{"path,remote_address", "remote_address"}
	var log strings.Builder
	for i := range 7 {
		log.WriteString(line("a", "/x", float64(i)))
	}
	r := replayed(t, o, log.String()+line("b", "/x", 8)+line("b", "/x", 9))
	for rule, want := range map[string]string{"client": "9 2 2", "path": "9 0 1", "get": "9 0 1", "agent": "9 0 2"} {
		got := ruleOf(t, &r.Outcome, rule)
		if text := fmt.Sprint(got.Requests, got.Denied, got.Identities); text != want {
			t.Errorf("%s: %s, want %s", rule, text, want)
		}
	}
	if got := ruleOf(t, &r.Outcome, "path"); identityOf(t, got, "/x").Requests != 9 {
		t.Errorf("the parent's identities are %+v", got.Worst)
	}
	if r.Denied != 2 {
		t.Errorf("%d were denied, want the last two of the first client", r.Denied)
	}
}

// Descriptors that the user names are asked in place of those that the rules would meet, and may have constants.
func TestNamedDescriptors(t *testing.T) {
	set := parsed(t, `
domain: web
descriptors:
  - key: generic_key
    value: slow
    descriptors:
      - key: remote_address
        rate_limit: {name: slow, unit: minute, requests_per_unit: 1}
  - key: remote_address
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 1}
`)
	o := options(set)
	o.Descriptors = []string{"generic_key=slow,remote_address", "generic_key=slow,remote_address"}
	r := replayed(t, o, line("a", "/", 1)+line("a", "/", 2)+line("b", "/", 3))
	if slow := ruleOf(t, &r.Outcome, "slow"); slow.Requests != 3 || slow.Denied != 1 ||
		identityOf(t, slow, "a").Denied != 1 {
		t.Errorf("%+v", slow)
	}
	if other := ruleOf(t, &r.Outcome, "per_ip"); other.Requests != 0 {
		t.Errorf("what was not named: %+v", other)
	}
	o.Descriptors = []string{"path"}
	if r := replayed(t, o, line("a", "/", 1)); r.Unmatched != 1 {
		t.Errorf("a descriptor that no rule has: %+v", r)
	}
}

// Who is newly denied, and who no longer.
func TestCompare(t *testing.T) {
	o := options(limited(t, "unit: minute, requests_per_unit: 2"))
	o.Old = parsed(
		t,
		"domain: old\ndescriptors:\n  - key: path\n    value: /x\n    rate_limit: {unit: minute, requests_per_unit: "+
			"3}\n",
	)
	log := line("a", "/", 1) + line("a", "/", 2) + line("a", "/", 3) + // newly denied
		line("b", "/x", 4) + line("c", "/x", 5) + line("d", "/x", 6) + line("e", "/x", 7) + // no longer denied
		line("a", "/x", 8) // denied by both
	r := replayed(t, o, log)
	c := r.Compared
	if r.Denied != 2 || c.Old.Denied != 2 || c.NewlyDenied != 1 || c.NoLongerDenied != 1 || c.BothDenied != 1 {
		t.Errorf("%+v, %+v", r, c)
	}
	per := ruleOf(t, &r.Outcome, "per_ip")
	if a := identityOf(t, per, "a"); per.Changed != 1 || per.IdentitiesChanged != 1 || a.Changed != 1 || a.Denied != 2 {
		t.Errorf("new: %+v", per)
	}
	if old := c.Old.Rules[0]; old.Changed != 1 || old.IdentitiesChanged != 1 || old.Denied != 2 || old.Requests != 5 {
		t.Errorf("old: %+v", old)
	}
	o.Old = o.Rules
	if c := replayed(t, o, log).Compared; c.NewlyDenied != 0 || c.NoLongerDenied != 0 || c.BothDenied != 2 {
		t.Errorf("with itself: %+v", c)
	}
	o.Old = parsed(t, "domain: web\n")
	if c := replayed(t, o, log).Compared; c.NewlyDenied != 2 || c.Old.Unmatched != 8 || c.Old.Rules == nil {
		t.Errorf("with no rule at all: %+v", c)
	}
	o.Descriptors = []string{"remote_address"}
	if c := replayed(t, o, log).Compared; c.NewlyDenied != 2 || c.Old.Unmatched != 8 {
		t.Errorf("with no rule at all, and a named descriptor: %+v", c)
	}
}

// Beyond the cap identities are not told apart, but decided on all the same.
func TestIdentitiesAreCapped(t *testing.T) {
	o := options(limited(t, "unit: minute, requests_per_unit: 2"))
	o.MaxIdentities, o.Worst = 10, 3
	var log strings.Builder
	for second := range 3 {
		for i := range 100 {
			log.WriteString(line(fmt.Sprint(i), "/", float64(second)))
		}
	}
	r := replayed(t, o, log.String()).Rules[0]
	if r.Identities != 10 || r.IdentitiesDenied != 10 || r.Denied != 100 || r.Uncounted != 270 || len(r.Worst) != 3 ||
		r.Peaks.Max != 3 {
		t.Errorf("%+v", r)
	}
	long := replayed(t, o, line(strings.Repeat("x", 5000), "/", 1)).Rules[0]
	if n := len(long.Worst[0].Name); n != maxName+len("...") {
		t.Errorf("a name of %d bytes", n)
	}
}

// Where the tables have no room, the report says so.
func TestForgottenKeysAreReported(t *testing.T) {
	o := options(limited(t, "unit: day, requests_per_unit: 2"))
	var log strings.Builder
	for i := range 40_000 {
		log.WriteString(line(fmt.Sprint(i), "/", float64(i)/1e3))
	}
	if r := replayed(t, o, log.String()); r.Forgotten == 0 || r.Requests != 40_000 {
		t.Errorf("%d forgotten in a table of %d bytes", r.Forgotten, counters.MinMemory)
	}
	if r := replayed(t, o, log.String()[:50_000]); r.Forgotten != 0 {
		t.Errorf("%d forgotten of few", r.Forgotten)
	}
}

func TestRefuses(t *testing.T) {
	two := parsed(t, "domain: a\ndescriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 1}}]\n---\n"+
		"domain: b\ndescriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	foreign := parsed(t, "domain: a\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 1}}]\n")
	fine := limited(t, "unit: minute, requests_per_unit: 1")
	var many []string
	for i := range rules.MaxDescriptors + 1 {
		many = append(many, fmt.Sprintf("remote_address,path=%d", i))
	}
	for _, c := range []struct {
		change func(*Options)
		log    string
		want   string
	}{
		{func(o *Options) { o.Rules = nil }, line("a", "/", 1), "no rules"},
		{func(o *Options) { o.Format = "xml" }, line("a", "/", 1), `unknown format "xml"`},
		{func(o *Options) { o.Worst = -1 }, line("a", "/", 1), "at least 0"},
		{func(o *Options) { o.Rules = two }, line("a", "/", 1), "2 domains"},
		{func(o *Options) { o.Rules, o.Domain = two, "c" }, line("a", "/", 1),
			`no rule is in domain "c"; there are a, b`},
		{func(o *Options) { o.Rules = foreign }, line("a", "/", 1), "no rule can be met"},
		{func(o *Options) { o.Old = foreign }, line("a", "/", 1), "the old rules: no rule can be met"},
		{func(o *Options) { o.Fields = []string{"x"} }, line("a", "/", 1), "KEY=PATH"},
		{func(o *Options) { o.Descriptors = []string{"tenant"} }, line("a", "/", 1), `no field is called "tenant"`},
		{func(o *Options) { o.Descriptors = []string{"time"} }, line("a", "/", 1), `no field is called "time"`},
		{func(o *Options) { o.Descriptors = []string{"path,,method"} }, line("a", "/", 1), "separated by commas"},
		{func(o *Options) { o.Descriptors = []string{strings.Repeat("path,", 40) + "path"} }, line("a", "/", 1),
			"at most 32"},
		{func(o *Options) { o.Descriptors = many }, line("a", "/", 1), "33 descriptors"},
		{func(*Options) {}, "", "the logs are empty"},
		{func(*Options) {}, "x\ny\n", "none of 2 lines could be read as a request; the first is log:1: the address"},
	} {
		o := options(fine)
		c.change(&o)
		if r, err := Run(t.Context(), o, []Log{logOf("log", c.log)}, func(Progress) {}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v, %v, want it to say %q", r, err, c.want)
		}
	}
	if _, err := Run(t.Context(), options(fine), make([]Log, MaxLogs+1), func(Progress) {}); err == nil ||
		!strings.Contains(err.Error(), "257 logs") {
		t.Errorf("too many logs: %v", err)
	}
	o := options(two)
	o.Domain = "b"
	if r := replayed(t, o, line("a", "/", 1)); len(r.Rules) != 1 || r.Rules[0].Requests != 1 {
		t.Errorf("one of two domains: %+v", r)
	}
}

func TestSuggestion(t *testing.T) {
	thousand := make([]uint64, 1000)
	for i := range thousand {
		thousand[i] = uint64(1000 - i)
	}
	for _, c := range []struct {
		peaks []uint64
		dist  Peaks
		want  Suggestion
	}{
		{[]uint64{7}, Peaks{7, 7, 7, 7, 7}, Suggestion{9, 7, 0}},
		{[]uint64{1, 1, 1, 50}, Peaks{1, 50, 50, 50, 50}, Suggestion{63, 50, 0}},
		{append(slices.Repeat([]uint64{4}, 990), slices.Repeat([]uint64{900}, 10)...), Peaks{4, 4, 4, 900, 900},
			Suggestion{5, 4, 10}},
		{thousand, Peaks{500, 900, 990, 999, 1000}, Suggestion{1300, 990, 0}},
	} {
		dist, got := distribution(c.peaks)
		if *dist != c.dist || *got != c.want {
			t.Errorf("%+v, %+v, want %+v, %+v", *dist, *got, c.dist, c.want)
		}
	}
}

func BenchmarkRun(b *testing.B) {
	log := traffic(50_000)
	o := options(parsed(b, layered))
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		replayed(b, o, log)
	}
}

// A log is replayed with the bans that its denials begin, and with what they cost beside the same rules without.
func TestBans(t *testing.T) {
	var log strings.Builder
	// of which the third and the eighth are denied by the limit
	for _, second := range []float64{0, 1, 2, 100, 200, 601, 602, 603, 900} {
		log.WriteString(line("10.0.0.1", "/a", second))
	}
	log.WriteString(line("10.0.0.2", "/a", 901))
	const limit = "unit: minute, requests_per_unit: 2"
	o := options(limited(t, limit+", ban: 599s"))
	o.Old = limited(t, limit)
	r := replayed(t, o, log.String())
	if r.Denied != 1+2+1+1 || r.Compared.Old.Denied != 2 || r.Compared.NewlyDenied != 3 {
		t.Errorf("%d denied, %d without bans, %d newly", r.Denied, r.Compared.Old.Denied, r.Compared.NewlyDenied)
	}
	for ban, want := range map[string]uint64{"count_rejected: false": 30, "count_rejected: true": 58} {
		log.Reset()
		for i := range 60 { // twice the limit
			log.WriteString(line("10.0.0.1", "/a", 15*float64(i)))
		}
		if r := replayed(t, options(limited(t, limit+", "+ban)), log.String()); r.Denied != want {
			t.Errorf("%s: %d of 60 denied, want %d", ban, r.Denied, want)
		}
	}
}

// With the parents that elastic rules bring along, descriptors that are not too many may meet too many limits: that is
// told, like any other fault of the options.
func TestParentsAreTooMany(t *testing.T) {
	o := options(parsed(t, `
domain: web
descriptors:
  - {key: all, value: requests, rate_limit: {name: all, unit: minute, requests_per_unit: 100}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 2, mode: elastic, parent: all}}
`))
	for i := range rules.MaxDescriptors {
		o.Descriptors = append(o.Descriptors, strings.TrimPrefix(strings.Repeat(",generic_key=x", i), ",")+",path")
	}
	o.Descriptors[0] = "path"
	_, err := Run(t.Context(), o, []Log{logOf("1", line("a", "/", 1))}, func(Progress) {})
	if err == nil || !strings.Contains(err.Error(), "fewer descriptors") {
		t.Errorf("error %v", err)
	}
}
