package parsers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgelimit/edgelimit/testnet/testkit"
)

// Server is a real server with a program that answers what it reads of each request.
type Server struct {
	Name  string
	needs []string // programs and files
	// command starts it at a port of loopback. The working directory is that of the programs.
	command func(port, dir string) *exec.Cmd
}

// folder has the programs that run in the servers.
const folder = "testdata/servers"

const (
	python  = "/usr/bin/python3" // Debian's, which knows Debian's packages
	modules = "/usr/lib/python3/dist-packages/"
	scripts = "/usr/share/nodejs/"
	jars    = "/usr/share/java/"
)

// Servers are all of them, in the order of the recording's columns.
var Servers = []Server{
	{"Django", []string{python, modules + "django", modules + "gunicorn"}, func(port, _ string) *exec.Cmd {
		return exec.Command(python, "-m", "gunicorn", "-b", "127.0.0.1:"+port, "django_app")
	}},
	{"Flask", []string{python, modules + "flask"}, func(port, _ string) *exec.Cmd {
		return exec.Command(python, "flask_app.py", port)
	}},
	{"Starlette", []string{python, modules + "starlette", modules + "uvicorn"}, func(port, _ string) *exec.Cmd {
		return exec.Command(python, "-m", "uvicorn", "--log-level", "warning", "--port", port, "starlette_app:app")
	}},
	{"Express", []string{"/usr/bin/node", scripts + "express", scripts + "cookie-parser"}, func(port,
		_ string) *exec.Cmd {
		return exec.Command("/usr/bin/node", "express.js", port)
	}},
	{"Node", []string{"/usr/bin/node"}, func(port, _ string) *exec.Cmd {
		return exec.Command("/usr/bin/node", "url.js", port)
	}},
	{"Tomcat", []string{"/usr/bin/javac", jars + "tomcat10-catalina.jar"}, func(port, dir string) *exec.Cmd {
		return exec.Command("/usr/bin/java", "-cp", jars+"*", "Tomcat.java", port, dir)
	}},
	{"PHP", []string{"/usr/bin/php"}, func(port, _ string) *exec.Cmd {
		return exec.Command("/usr/bin/php", "-q", "-S", "127.0.0.1:"+port, "php.php")
	}},
	{"lighttpd", []string{"/usr/sbin/lighttpd"}, func(_, dir string) *exec.Cmd {
		return exec.Command("/usr/sbin/lighttpd", "-D", "-f", filepath.Join(dir, "lighttpd.conf"))
	}},
	{"Rack", []string{"/usr/bin/puma", "/usr/bin/ruby"}, func(port, _ string) *exec.Cmd {
		return exec.Command("/usr/bin/puma", "-q", "-t", "1:4", "-b", "tcp://127.0.0.1:"+port, "rack.ru")
	}},
}

// Installed reports whether everything is there that the server needs.
func (s *Server) Installed() bool {
	for _, name := range s.needs {
		if _, err := os.Stat(name); err != nil {
			return false
		}
	}
	return true
}

// Start starts the server until the test ends, and returns its address.
func (s *Server) Start(t testing.TB) (addr string) {
	t.Helper()
	port, dir := fmt.Sprint(testkit.FreePort(t)), t.TempDir()
	addr = "127.0.0.1:" + port
	if s.Name == "lighttpd" {
		configure(t, dir, port)
	}
	cmd := s.command(port, dir)
	cmd.Dir = folder
	cmd.Stdout = io.Discard
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "NODE_PATH="+scripts, "NODE_ENV=production")
	p := testkit.Start(t, cmd)
	p.Await(s.Name+" listens", func() bool {
		conn, err := net.Dial("tcp", addr)
		return err == nil && conn.Close() == nil
	})
	return addr
}

// configure writes lighttpd's configuration, and serves what it asks by SCGI until the test ends.
func configure(t testing.TB, dir, port string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "lighttpd.conf"))
	testkit.Must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go serveSCGI(l)
	_, scgi, _ := net.SplitHostPort(l.Addr().String())
	config := strings.NewReplacer("DIR", dir, "PORT", port, "SCGI", scgi).Replace(string(text))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "lighttpd.conf"), []byte(config), 0o600))
}

// serveSCGI answers requests of SCGI with what they say. It ends with the listener.
func serveSCGI(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var n int
			if _, err := fmt.Fscanf(conn, "%d:", &n); err != nil {
				return
			}
			block := make([]byte, n)
			if _, err := io.ReadFull(conn, block); err != nil {
				return
			}
			fields, env := strings.Split(string(block), "\x00"), map[string]string{}
			for i := 0; i+1 < len(fields); i += 2 {
				env[fields[i]] = fields[i+1]
			}
			body, _ := json.Marshal(reading{Path: []string{env["SCRIPT_NAME"] + env["PATH_INFO"]},
				Header: []string{env["HTTP_X_API_KEY"]}})
			_, _ = fmt.Fprintf(conn, "Status: 200 OK\r\nContent-Type: application/json\r\n\r\n%s", body)
		}()
	}
}

// reading is what a server reads of a request: the values that its usual functions return.
type reading struct{ Path, Query, Cookie, Token, Header []string }

// read asks the server at an address about a request. It returns false if the server refuses the request.
func read(addr string, request []byte) (got reading, ok bool, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return got, false, err
	}
	defer conn.Close()
	if _, err := conn.Write(request); err != nil {
		return got, false, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil { // it closes the connection
		return got, false, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return got, false, nil
	}
	return got, true, json.NewDecoder(resp.Body).Decode(&got)
}
