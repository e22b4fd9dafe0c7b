package evasion

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Variations are all forms, each with a name of its own.
func Variations() []Variation {
	single := [][]Variation{headers(), cookies(), tokens(), queries(), paths(), others()}
	var all []Variation
	for _, family := range single {
		all = append(all, family...)
	}
	return append(all, pairs(single[:4])...)
}

// pairs are forms in which two sources are varied: each form of a family, with one of each other family after it.
func pairs(families [][]Variation) []Variation {
	names := []string{
		"X-Api-Key",
		"Cookie",
		"Authorization",
		"",
	} // the line that a family varies; the last varies the target
	var all []Variation
	for f, family := range families {
		for g := f + 1; g < len(families); g++ {
			for i, first := range family {
				second := families[g][i*7%len(families[g])]
				all = append(all, first.with(first.Name+" and "+second.Name, func(v *Variation) {
					v.Loses = append(v.Loses, second.Loses...)
					if names[g] == "" {
						v.Target = second.Target
						return
					}
					v.set(names[g], linesAbout(second, names[g])...)
				}))
			}
		}
	}
	return all
}

// linesAbout are the lines that took the place of the plain request's line of a name.
func linesAbout(v Variation, name string) []string {
	plain := Plain().Lines
	var at int
	for i, line := range plain {
		if strings.HasPrefix(line, name+":") {
			at = i
		}
	}
	return v.Lines[at : len(v.Lines)-(len(plain)-at-1)]
}

// lineForms are forms of one header line.
func lineForms(name string, loses string, forms []form) []Variation {
	var all []Variation
	for _, f := range forms {
		all = append(all, Plain().with(name+": "+f.name, func(v *Variation) {
			v.set(name, f.lines...)
			if f.loses {
				v.Loses = []string{loses}
			}
		}))
	}
	return all
}

// form is what takes the place of a line.
type form struct {
	name  string
	loses bool
	lines []string
}

func is(name string, lines ...string) form { return form{name, false, lines} }

func loses(name string, lines ...string) form { return form{name, true, lines} }

// numbered are lines with the numbers from 1 to n in the place of %d.
func numbered(n int, format string) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf(format, i+1))
	}
	return lines
}

func headers() []Variation {
	const key = "X-Api-Key: k1"
	return lineForms("X-Api-Key", "api_key", []form{
		is("twice", key, key), is("another after", key, "X-Api-Key: k2"), is("another before", "X-Api-Key: k2", key),
		is("others around", "X-Api-Key: k2", key, "X-Api-Key: k3"),
		is("seven others after", append([]string{key}, numbered(7, "X-Api-Key: x%d")...)...),
		is("eight others before", append(numbered(8, "X-Api-Key: x%d"), key)...),
		is("100 others before", append(numbered(100, "X-Api-Key: x%d"), key)...), is("empty after", key, "X-Api-Key:"),
		is("empty before", "X-Api-Key:", key), is("blank before", "X-Api-Key: \t ", key),
		is("blanks around", "X-Api-Key:   k1  "), is("tabs around", "X-Api-Key:\tk1\t"), is("no blank", "X-Api-Key:k1"),
		is("small letters", "x-api-key: k1"), is("capital letters", "X-API-KEY: k1"),
		is("underscores", "X_Api_Key: k1"), is("an underscore", "X-Api_Key: k1"),
		is("small underscores", "x_api_key: k1"), is("underscores beside", key, "X_Api_Key: k2"),
		is("underscores before", "X_Api_Key: k2", key), is("another name before", "X-Api-Keys: k2", key),
		is("a hop by hop header", key, "Connection: X-Api-Key"), is("folded", "X-Api-Key:", " k1"),
		is("folded with a tab", "X-Api-Key:", "\tk1"), is("a blank before the colon", "X-Api-Key : k1"),
		is("NUL before", "X-Api-Key: \x00", key), is("obs-text before", "X-Api-Key: \xff", key),
		is("the marker before", "X-Api-Key: (unreadable)", key),
		is("the other marker before", "X-Api-Key: (missing)", key),
		is("long before", "X-Api-Key: "+strings.Repeat("x", 8000), key),
		is("too long before", "X-Api-Key: "+strings.Repeat("x", 40_000), key), loses("a list", "X-Api-Key: k1, k2"),
		loses("quoted", `X-Api-Key: "k1"`),
	})
}

func cookies() []Variation {
	const cookie = "Cookie: theme=dark; session=s1"
	many := strings.Repeat(";", 3001)
	return lineForms("Cookie", "session", []form{
		is("twice", cookie, cookie), is("another after", "Cookie: session=s1; session=s2"),
		is("another before", "Cookie: session=s2; session=s1"),
		is("another header after", cookie, "Cookie: session=s2"),
		is("another header before", "Cookie: session=s2", cookie),
		is("eight others before", "Cookie: "+strings.Join(numbered(8, "session=x%d"), ";")+"; session=s1"),
		is("empty after", "Cookie: session=s1; session="), is("empty before", "Cookie: session=; session=s1"),
		is("empty header before", "Cookie:", cookie), is("quoted", `Cookie: session="s1"`),
		is("quoted, another before", `Cookie: session="s2"; session=s1`), is("an open quote", `Cookie: session="s1`),
		is("an open quote and one more", `Cookie: session="s1X`),
		is("an open quote elsewhere", `Cookie: a="b; session=s1`),
		is("quotes around it", `Cookie: a="; session=s1; b="`), is("octal", `Cookie: session="\163\061"`),
		is("percent", "Cookie: session=%731"), is("percent in the name", "Cookie: s%65ssion=s1"),
		is("bad percent beside", "Cookie: a=%zz; session=s1"),
		is("bad percent before", "Cookie: session=%zz; session=s1"),
		is("3,000 separators before", "Cookie: "+many+"session=s1"),
		is("3,000 separators after", "Cookie: session=s1"+many),
		is("3,000 cookies before", "Cookie: "+strings.Repeat("a=b;", 3001)+"session=s1"),
		is("no blank", "Cookie: theme=dark;session=s1"), is("tabs", "Cookie: theme=dark;\tsession=s1\t"),
		is("blanks around", "Cookie:  theme=dark ;   session=s1  ;"), is("blanks at the sign", "Cookie: session = s1"),
		is("commas", "Cookie: theme=dark, session=s1"), is("a comma after", "Cookie: session=s1, x=1"),
		is("a version", `Cookie: $Version=1; session=s1; $Path="/"`),
		is("no value before", "Cookie: session; session=s1"), is("no name", "Cookie: =session=s1"),
		is("no name before", "Cookie: =s2; session=s1"), is("signs only", "Cookie: ===; session=s1"),
		is("an array", "Cookie: session[]=s1"), is("an array beside", "Cookie: session[a]=s2; session=s1"),
		is("capital letters", "Cookie: SESSION=s1"), is("control characters beside", "Cookie: a=\x01; session=s1"),
		is("obs-text beside", "Cookie: a=\xff\xfe; session=s1"), is("NUL beside", "Cookie: a=\x00; session=s1"),
		is("bad name beside", "Cookie: (a)=@; session=s1"),
		is("long beside", "Cookie: a="+strings.Repeat("x", 9000)+"; session=s1"),
		loses("a backslash", `Cookie: session=s1\`),
	})
}

func tokens() []Variation {
	token := strings.TrimPrefix(Bearer, "Bearer ")
	bob := Token(`{"sub":"bob"}`)
	padded := func(encoding *base64.Encoding, payload string) string {
		return "Authorization: Bearer e30." + encoding.EncodeToString([]byte(payload)) + ".c2ln"
	}
	line := "Authorization: " + Bearer
	return lineForms("Authorization", "sub", []form{
		is("twice", line, line), is("another after", line, "Authorization: Bearer "+bob),
		is("another before", "Authorization: Bearer "+bob, line), is("basic before", "Authorization: Basic YTpi", line),
		is("basic after", line, "Authorization: Basic YTpi"), is("empty before", "Authorization:", line),
		is("bearer alone before", "Authorization: Bearer", line), is("a tab", "Authorization: Bearer\t"+token),
		is("two blanks", "Authorization: Bearer  "+token+" "), is("blank and tab", "Authorization: Bearer \t "+token),
		is("small letters", "Authorization: bearer "+token), is("capital letters", "Authorization: BEARER "+token),
		is("doubled scheme", "Authorization: Bearer Bearer "+token),
		is("doubled token", "Authorization: Bearer "+token+" "+token),
		is("another token after", "Authorization: Bearer "+token+" "+bob),
		is("another token before", "Authorization: Bearer "+bob+", Bearer "+token),
		is("a list", "Authorization: Bearer "+token+", Basic YTpi"),
		is("padded", padded(base64.URLEncoding, `{"sub":"ann","x":"1"}`)),
		is("padded more", padded(base64.URLEncoding, `{"sub":"ann"}`)),
		is("standard alphabet", padded(base64.RawStdEncoding, `{"x":"??>","sub":"ann"}`)),
		is("standard alphabet, padded", padded(base64.StdEncoding, `{"x":"??>>","sub":"ann"}`)),
		is("the claim twice", padded(base64.RawURLEncoding, `{"sub":"ann","sub":"bob"}`)),
		is("the claim twice, last", padded(base64.RawURLEncoding, `{"sub":"bob","sub":"ann"}`)),
		is("the claim empty and again", padded(base64.RawURLEncoding, `{"sub":"","sub":"ann"}`)),
		is("the claim null and again", padded(base64.RawURLEncoding, `{"sub":null,"sub":"ann"}`)),
		is("the claim an object and again", padded(base64.RawURLEncoding, `{"sub":{},"sub":"ann"}`)),
		is("a list of one", padded(base64.RawURLEncoding, `{"sub":["ann"]}`)),
		is("escaped", padded(base64.RawURLEncoding, `{"\u0073ub":"\u0061nn"}`)),
		is("blanks", padded(base64.RawURLEncoding, " {\t\"sub\" : \"ann\" }\n")),
		is("cut off", padded(base64.RawURLEncoding, `{"sub":"ann","x":`)),
		is("a byte order mark", padded(base64.RawURLEncoding, "\ufeff"+`{"sub":"ann"}`)),
		is("no signature", "Authorization: Bearer e30."+base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"ann"}`))),
		is("four parts", "Authorization: Bearer "+token+".x"), loses("no JSON", "Authorization: Bearer e30.e3t7.x"),
		loses("no base64", "Authorization: Bearer e30.!!!.x"),
		loses("an empty payload", "Authorization: Bearer e30..x"),
		loses("a claim that is an object", padded(base64.RawURLEncoding, `{"sub":{"a":1}}`)),
	})
}

// targets are forms of the target, or those of its parts.
func targets(kind, losing string, format string, forms []string) []Variation {
	var all []Variation
	for _, f := range forms {
		f, lost := strings.CutPrefix(f, "-")
		all = append(all, Plain().with(fmt.Sprintf("%s: %.40q of %d bytes", kind, f, len(f)), func(v *Variation) {
			v.Target = fmt.Sprintf(format, f)
			if lost {
				v.Loses = []string{losing}
			}
		}))
	}
	return all
}

// queries are forms of the query. Those that begin with a hyphen lose the token.
func queries() []Variation {
	return targets("query", "token", "/tenants/acme/login?%s", []string{
		"token=t1", "token=t1&page=2", "token=t1&token=t1", "token=t1&token=t2", "token=t2&token=t1",
		"token=&token=t1", "token=t1&token=", "token&token=t1", "token=t1&token", "token=t1&", "&token=t1",
		"&&token=t1&&", "token=t1&x=%zz", "x=%zz&token=t1", "%zz&token=t1", "%=%&token=t1", "token=t1&;",
		";&token=t1", "token=t1;", "token=t1;b=1", "a=1;token=t1", "a=1;token=t1;b=1", "token=t2;token=t1",
		"token=t1&a;b;c", "%74oken=t1", "t%6Fken=t1", "token=%74%31", "token=%741", "token=t%31", "Token=t1",
		"TOKEN=t1", "ToKeN=t2&token=t1", "token[]=t1", "token[0]=t1", "token%5B%5D=t1", "token[]=t2&token=t1",
		"token[a][b]=t2&token=t1", "+token=t1", "%20token=t1", "token+=t1", "token%00=t1", "token%00x=t1",
		"token=t1#", "token=t1#1", "token=t1#&x", "x=1#&token=t1", "#&token=t1", "?&token=t1", "token=%u00741",
		"token=%u0074%u0031", "token=t1&a=\xff", "a=\xff\xfe&token=t1", "token=%ff&token=t1",
		"token=(unreadable)&token=t1", strings.Repeat("&", 10_001) + "token=t1",
		"token=t1" + strings.Repeat("&", 10_001), strings.Repeat("a&", 5000) + "token=t1",
		strings.Repeat(";", 3001) + "token=t1",
		strings.Join(numbered(7, "token=x%d"),
			"&") + "&token=t1", strings.Join(numbered(8, "token=x%d"), "&") + "&token=t1",
		strings.Join(numbered(900, "token=x%d"), "&") + "&token=t1", "token=" + strings.Repeat("x", 9000) + "&token=t1",
		"token=" + strings.Repeat("x",
			40_000) + "&token=t1", "a=b=c&token=t1", "=&token=t1", "=token&token=t1", "a=token=t2&token=t1",
		"-token=t1 ", "-token=%zz", "-token=t1%00", "-token==t1",
	})
}

// paths are forms of the path. Those that begin with a hyphen lose the tenant: the template does not name it in any
// reading, or another.
func paths() []Variation {
	forms := []string{
		"/tenants/acme/login/", "/tenants/acme/login//", "//tenants/acme/login", "///tenants///acme///login",
		"/tenants//acme/login", "/./tenants/./acme/./login", "/tenants/acme/login/.", "/x/../tenants/acme/login",
		"/tenants/x/../acme/login", "/tenants/acme/x/../login", "/../tenants/acme/login", "/../../tenants/acme/login",
		"/tenants/acme/login/x/..", "/%74enants/acme/login", "/tenants/%61cme/login", "/tenants/acme/%6cogin",
		"/tenants/acme/%6Cogin", "/tenants/acme/logi%6e", "/tenants%2facme/login", "/tenants%2Facme%2flogin",
		"/tenants/acme%2flogin", "/%2e/tenants/acme/login", "/x/%2e%2e/tenants/acme/login",
		"/x/.%2e/tenants/acme/login", "/x%2f..%2ftenants/acme/login", "/tenants/x/%2e%2e%2facme/login",
		"/tenants/acme/%256cogin", "/tenants/%2561cme/login", "/x/%252e%252e/tenants/acme/login",
		"/x%252f..%252ftenants/acme/login", "/tenants%252facme/login", "/tenants/acme/login#",
		"/tenants/acme/login#x", "/tenants/acme/login#/../x", "/tenants/acme/login%23x", "/#/../tenants/acme/login",
		"/tenants/acme/login;", "/tenants/acme/login;a=1", "/tenants/acme/login;a=1;b=2", "/tenants/acme;a=1/login",
		"/tenants;x/acme;y/login;z", "/;x/tenants/acme/login", "/x/..;/tenants/acme/login",
		"/x/..;a=1/tenants/acme/login", "/tenants/acme/login%3ba=1", `\tenants\acme\login`, `/tenants\acme\login`,
		`/x\..\tenants\acme\login`, "/tenants%5cacme%5clogin", "/x%5c..%5ctenants/acme/login", "/Tenants/acme/login",
		"/tenants/acme/Login", "/tenants/acme/LOGIN", "/TENANTS/acme/LOGIN", "/tenants/acme/lo%67in%00",
		"/tenants/acme/login%00.png", "/tenants/acme/login%3f", "/tenants/acme/login%3fx=1",
		"http://shop.example/tenants/acme/login", "HTTP://shop.example/tenants/acme/login",
		"http://shop.example:80/tenants/acme/login", "http://u:p@shop.example/tenants/acme/login",
		"http://shop.example//tenants/acme/login", "//x/tenants/acme/login", "//shop.example/tenants/acme/login",
		"/tenants/acme/login?", "/tenants/acme/login?/../../x", "/%zz/../tenants/acme/login",
		"/tenants/acme/login/%zz/..", "/TENANTS/acme/login;x#y", `/X\..\TENANTS/acme/login#z`,
		"/tenants/acme/login%2f", "/tenants/acme/login%2f%2e", "/tenants/acme/login/%2e%2e%2flogin",
		"/tenants/acme/login?x=http://y/z", "/a/b/c/../../../tenants/acme/login", "/tenants/acme/a%2f..%2flogin",
		strings.Repeat("/x/..", 1500) + "/tenants/acme/login", strings.Repeat("/", 9000) + "tenants/acme/login",
		strings.Repeat("/.", 5000) + "/tenants/acme/login", "/tenants/acme/login" + strings.Repeat(";", 5000),
	}
	var all []Variation
	for _, f := range forms {
		all = append(all, Plain().with(fmt.Sprintf("path: %.60q of %d bytes", f, len(f)), func(v *Variation) {
			sign := "?"
			if strings.Contains(f, "?") {
				sign = "&"
			}
			v.Target = f + sign + "page=2&token=t1"
		}))
	}
	return all
}

// others are forms of method and host, and headers that concern none of the layers, or pretend to.
func others() []Variation {
	var all []Variation
	add := func(name string, change func(*Variation)) { all = append(all, Plain().with(name, change)) }
	for _, method := range []string{"get", "Get", "gET"} {
		add("method: "+method, func(v *Variation) { v.Method = method })
	}
	for _, method := range []string{"HEAD", "POST", "OPTIONS", "DELETE", "PROPFIND", "GETX"} {
		add("method: "+method, func(v *Variation) { v.Method, v.Loses = method, []string{"method"} })
	}
	for _, host := range []string{
		"Shop.Example", "SHOP.EXAMPLE", "shop.example:80", "shop.example:8080", "shop.example:", "shop.example.",
		"shop.example.:80", "SHOP.example.:443",
	} {
		add("host: "+host, func(v *Variation) { v.Host = host })
	}
	for _, lines := range [][]string{
		{"X-Forwarded-For: 198.51.100.1"}, {"X-Real-Ip: 198.51.100.1"}, {"Forwarded: for=198.51.100.1"},
		{"X-Forwarded-Uri: /free"},
		{"X-Original-Uri: /free"}, {"X-Original-Url: /free"}, {"X-Forwarded-Method: HEAD"}, {"X-Original-Method: HEAD"},
		{"X-Forwarded-Host: other"},
		{"X-Http-Method-Override: HEAD"}, {"X-Rewrite-Url: /free"}, {"X-RL-Decision: allow"},
		{"X-Forwarded-Prefix: /x"}, {"Via: 1.1 x"},
		{"Connection: X-Api-Key, Cookie, Authorization"}, {"Connection: X-Forwarded-For, X-Forwarded-Uri"},
		{"Te: trailers"}, {"Trailer: X-Api-Key"},
		{"Expect: 100-continue"}, {"Upgrade: websocket"}, {"Range: bytes=0-0"},
		{"Content-Type: application/x-www-form-urlencoded"},
		{"Origin: http://evil.example"}, {"Sec-Fetch-Site: cross-site"}, {"Content-Length: 0"},
		{"Transfer-Encoding: identity"},
		{"X-Forwarded-For:"}, {"X-Forwarded-Uri:"}, {"X_Forwarded_Uri: /free"}, {"X_Forwarded_For: 198.51.100.1"},
	} {
		add("more: "+lines[0], func(v *Variation) { v.Lines = append(v.Lines, lines...) })
		add("more, first: "+lines[0], func(v *Variation) { v.Lines = append(lines, v.Lines...) })
	}
	for _, query := range []string{"domain=x&", "deny=401&", "deny=x&", "a;b&", "deny=403&domain=other&",
		"domain=%zz&"} {
		add("parameters of /v1/auth: "+query,
			func(v *Variation) { v.Target = strings.Replace(v.Target, "?", "?"+query, 1) })
	}
	add("lines backwards", func(v *Variation) {
		for i, j := 0, len(v.Lines)-1; i < j; i, j = i+1, j-1 {
			v.Lines[i], v.Lines[j] = v.Lines[j], v.Lines[i]
		}
	})
	return all
}
