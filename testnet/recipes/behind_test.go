package recipes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// behindNginx and behindCaddy serve files, and hand uploads to the application.
const behindNginx = `
user root;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    client_max_body_size 0;
    gzip on;
    gzip_min_length 100;
    types { text/html html; }
    server {
        listen 127.0.0.1:8088;
        root files;
        location /early { return 405; }
        location /upload { proxy_pass http://127.0.0.1:8000; }
    }
}
`

const behindCaddy = `
{
	admin off
	auto_https off
}
http://:8088 {
	bind 127.0.0.1
	encode gzip {
		minimum_length 100
	}
	handle /early {
		respond 405
	}
	handle /upload {
		reverse_proxy 127.0.0.1:8000
	}
	handle {
		root * files
		file_server
	}
}
`

// behindRules let each version of HTTP use up a limit of its own.
const behindRules = `
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {name: per_ip, unit: hour, requests_per_unit: 100000}}
  - {key: path, value: /limited1.1, rate_limit: {name: first, unit: hour, requests_per_unit: 1}}
  - {key: path, value: /limited2, rate_limit: {name: second, unit: hour, requests_per_unit: 1}}
`

// largeBody is the size of the largest file and upload.
const largeBody = 100 << 20

// TestBehind has the reverse proxy forward what curl asks for, over HTTP/1.1 and HTTP/2, to nginx and to Caddy: what a
// browser needs of a server comes through unchanged.
func TestBehind(t *testing.T) {
	for _, server := range []struct {
		name, config string
		args         []string
	}{
		{"nginx", behindNginx, []string{"-p", ".", "-c", "behind", "-e", "stderr", "-g", "daemon off; pid nginx.pid;"}},
		{"caddy", behindCaddy, []string{"run", "--config", "behind", "--adapter", "caddyfile"}},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			b := startBehind(t, server.config)
			b.start(server.name, server.args...)
			startEdgelimit(t, b.dir, b.at(portHealth), 0, "proxy", "--config", "edgelimit.yaml")
			for version, flag := range map[string]string{"1.1": "--http1.1", "2": "--http2"} {
				b.version, b.flag = version, flag
				b.checkFiles()
				b.checkCompression()
				b.checkLarge()
				b.checkEarly()
				b.checkDenied()
			}
		})
	}
}

// behind is edgelimit in front of a server, as curl sees it.
type behind struct {
	*site
	ca            string
	page          []byte
	large         string // file
	sum           string // of the large file
	version, flag string // of HTTP
}

func startBehind(t *testing.T, config string) *behind {
	l := newSite(t)
	ca := testkit.NewAuthority(t, "ca")
	server := ca.Issue(t, "server")
	b := &behind{site: l, ca: ca.CertFile, page: bytes.Repeat([]byte("<p>a line of a page</p>\n"), 500),
		large: filepath.Join(l.dir, "files", "large.bin")}
	if err := os.MkdirAll(filepath.Join(l.dir, "files"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"page.html", "limited1.1", "limited2"} {
		b.write(filepath.Join("files", name), b.page)
	}
	large, hash := make([]byte, largeBody), sha256.New()
	_, _ = rand.NewChaCha8([32]byte{}).Read(large)
	_, _ = hash.Write(large)
	b.write("files/large.bin", large)
	b.sum = fmt.Sprintf("%d %x", largeBody, hash.Sum(nil))
	b.write("behind", []byte(strings.NewReplacer("127.0.0.1", l.host).Replace(config)))
	b.write("rules.yaml", []byte(behindRules))
	b.write("edgelimit.yaml", fmt.Appendf(nil, `
rules: [rules.yaml]
requests: {descriptors: [{remote_address: client}, {path: path}]}
health: %s
admin: ""
proxy: {listen: %s, upstreams: ["http://%s"]}
tls: {proxy: {cert_file: %s, key_file: %s}}
`, l.at(portHealth), l.at(portEdgelimit), l.proxy(), server.CertFile, server.KeyFile))
	l.serve(l.at(portApplication), func(w http.ResponseWriter, r *http.Request) {
		hash := sha256.New()
		n, err := io.Copy(hash, r.Body)
		fmt.Fprintf(w, "%s %d %x %v", r.Method, n, hash.Sum(nil), err)
	})
	return b
}

func (b *behind) write(name string, text []byte) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), text, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// fetched is what curl got: of each response the version of HTTP, the status, and how many connections it took; of the
// last one the fields; all bodies.
type fetched struct {
	responses []string
	header    textproto.MIMEHeader
	body      []byte
}

// curl asks for paths, one after the other.
func (b *behind) curl(paths []string, flags ...string) (f fetched) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	header := filepath.Join(b.dir, "header")
	args := []string{"--disable", "--silent", "--show-error", "--noproxy", "*", "--cacert", b.ca, b.flag,
		"--connect-to", "::" + b.at(portEdgelimit), "--dump-header", header,
		"--write-out", `%{stderr}%{http_version} %{http_code} %{num_connects}\n`}
	for _, path := range paths {
		flags = append(flags, "https://localhost"+path)
	}
	cmd := exec.CommandContext(ctx, "curl", append(args, flags...)...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		b.t.Fatalf("%s: %v: %s", cmd, err, &said)
	}
	f.body = out.Bytes()
	f.responses = strings.Split(strings.TrimSpace(said.String()), "\n")
	text, err := os.ReadFile(header)
	if err != nil {
		b.t.Fatal(err)
	}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\r\n\r\n")
	f.header = make(textproto.MIMEHeader)
	for _, line := range strings.Split(blocks[len(blocks)-1], "\r\n")[1:] {
		if name, value, ok := strings.Cut(line, ":"); ok {
			f.header.Add(name, strings.TrimSpace(value))
		}
	}
	return f
}

// one is curl for one path, whose status is to be as wanted.
func (b *behind) one(status int, path string, flags ...string) fetched {
	b.t.Helper()
	f := b.curl([]string{path}, flags...)
	if want := fmt.Sprintf("%s %d 1", b.version, status); !slices.Equal(f.responses, []string{want}) {
		b.t.Errorf("HTTP/%s %s %q: %q, want %s", b.version, path, flags, f.responses, want)
	}
	if b.field(f, "Ratelimit-Policy") == "" {
		b.t.Errorf("HTTP/%s %s %q: %v lacks RateLimit-Policy", b.version, path, flags, f.header)
	}
	return f
}

// field returns a field that is there at most once.
func (b *behind) field(f fetched, name string) string {
	b.t.Helper()
	if values := f.header[name]; len(values) > 1 {
		b.t.Errorf("HTTP/%s: %s is there %d times: %q", b.version, name, len(values), values)
	}
	return f.header.Get(name)
}

// checkFiles holds that GET, HEAD, ranges and conditions have their answers.
func (b *behind) checkFiles() {
	size := fmt.Sprint(len(b.page))
	whole := b.one(200, "/page.html")
	etag := b.field(whole, "Etag")
	if !bytes.Equal(whole.body, b.page) || b.field(whole, "Content-Length") != size || etag == "" {
		b.t.Errorf("HTTP/%s: a page of %d bytes, %v", b.version, len(whole.body), whole.header)
	}
	if head := b.one(200, "/page.html", "--head", "--output", "/dev/null"); b.field(head, "Content-Length") != size {
		b.t.Errorf("HTTP/%s: HEAD has %v", b.version, head.header)
	}
	part := b.one(206, "/page.html", "--range", "100-199")
	if !bytes.Equal(part.body, b.page[100:200]) || b.field(part, "Content-Range") != "bytes 100-199/"+size {
		b.t.Errorf("HTTP/%s: a range of %d bytes, %v", b.version, len(part.body), part.header)
	}
	several := b.one(206, "/page.html", "--range", "0-9,100-119")
	if !strings.HasPrefix(b.field(several, "Content-Type"), "multipart/byteranges") ||
		!bytes.Contains(several.body, b.page[100:120]) {
		b.t.Errorf("HTTP/%s: two ranges have %v %q", b.version, several.header, several.body)
	}
	if none := b.one(416, "/page.html", "--range", "999999-"); b.field(none, "Content-Range") != "bytes */"+size {
		b.t.Errorf("HTTP/%s: a range beyond the end has %v", b.version, none.header)
	}
	same := b.one(304, "/page.html", "--header", "If-None-Match: "+etag)
	if len(same.body) > 0 || b.field(same, "Etag") != etag {
		b.t.Errorf("HTTP/%s: not modified, %d bytes, %v", b.version, len(same.body), same.header)
	}
	b.one(200, "/page.html", "--header", `If-None-Match: "another"`)
	b.one(404, "/missing")
}

// checkCompression holds that the server and the client agree on it by themselves.
func (b *behind) checkCompression() {
	packed := b.one(200, "/page.html", "--header", "Accept-Encoding: gzip")
	if b.field(packed, "Content-Encoding") != "gzip" || !bytes.HasPrefix(packed.body, []byte("\x1f\x8b")) ||
		len(packed.body) > len(b.page)/2 {
		b.t.Errorf("HTTP/%s: %d bytes, %v", b.version, len(packed.body), packed.header)
	}
	if read := b.one(200, "/page.html", "--compressed"); !bytes.Equal(read.body, b.page) {
		b.t.Errorf("HTTP/%s: the compressed page has %d bytes", b.version, len(read.body))
	}
	if plain := b.one(200, "/page.html"); b.field(plain, "Content-Encoding") != "" {
		b.t.Errorf("HTTP/%s: who asks for no compression gets %v", b.version, plain.header)
	}
}

// checkLarge holds that large bodies come and go as they are.
func (b *behind) checkLarge() {
	down := b.one(200, "/large.bin")
	if got := fmt.Sprintf("%d %x", len(down.body), sha256.Sum256(down.body)); got != b.sum {
		b.t.Errorf("HTTP/%s: the large file has %s, want %s", b.version, got, b.sum)
	}
	for _, flags := range [][]string{{}, {"--header", "Transfer-Encoding: chunked"}} {
		up := b.one(200, "/upload", append(flags, "--upload-file", b.large)...)
		if got, want := string(up.body), "PUT "+b.sum+" <nil>"; got != want {
			b.t.Errorf("HTTP/%s: the application got %s, want %s", b.version, got, want)
		}
		if b.version == "2" {
			return // it has no chunks
		}
	}
}

// checkEarly holds that a client gets a response that comes before its request has been read. Over HTTP/2 curl 7.88
// stumbles over the RST_STREAM with NO_ERROR that follows such a response (RFC 9113, section 8.1).
func (b *behind) checkEarly() {
	if b.version != "2" {
		b.one(405, "/early", "--upload-file", b.large)
	}
}

// checkDenied holds that a denial keeps the connection, and that the body of a denied request is not read as another.
func (b *behind) checkDenied() {
	limited := "/limited" + b.version
	f := b.curl([]string{limited, limited, "/page.html"}, "--output", "/dev/null", "--output", "/dev/null")
	want := []string{b.version + " 200 1", b.version + " 429 0", b.version + " 200 0"}
	if !slices.Equal(f.responses, want) || !bytes.Equal(f.body, b.page) {
		b.t.Errorf("HTTP/%s: %q and %d bytes, want %q", b.version, f.responses, len(f.body), want)
	}
	upload := b.large
	if b.version == "2" { // see checkEarly
		upload = filepath.Join(b.dir, "files", "page.html")
	}
	denied := b.one(429, limited, "--upload-file", upload)
	if !bytes.Contains(denied.body, []byte("quota-exceeded")) || b.field(denied, "Retry-After") == "" {
		b.t.Errorf("HTTP/%s: a denied upload gets %v %s", b.version, denied.header, denied.body)
	}
}
