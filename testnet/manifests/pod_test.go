//go:build docker

package manifests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A pod is run as kubelet runs it, as far as a machine without Kubernetes can: the containers share a network, which a
// sandbox holds; they start in the manifest's order, each after the startup probe of the one before; its probes go on
// in their periods; and they end in the opposite order, each after its sleep.
type pod struct {
	t        *testing.T
	name     string // of the sandbox, and the prefix of the containers' names
	ip       string
	image    string
	folder   string // of the files that the containers mount
	manifest *built
}

const waitAtMost = time.Minute

// docker runs a docker command and returns what it prints.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	return strings.TrimSpace(run(t, ".", "docker", args...))
}

// TestSidecarPods runs two pods of the sidecar's manifest under load, and ends one: no request fails, and its sidecar
// answers until the server has gone.
func TestSidecarPods(t *testing.T) {
	b := build(t, "sidecar")
	project := fmt.Sprintf("edgelimit-pods-%d", os.Getpid())
	image := podImage(t, project)
	docker(t, "network", "create", project)
	t.Cleanup(func() { removeAll(t, "network", "rm", project) })
	folder := podFiles(t, b)

	pods := []*pod{startPod(t, b, project, "shop-0", image, folder), startPod(t, b, project, "shop-1", image, folder)}
	for _, p := range pods {
		p.await("it reaches its peer", p.reachesPeer)
	}

	leaving := pods[0]
	probes := leaving.probe()
	load := startLoad(t, leaving.address(b.edgelimit(), "limited"))
	load.more(500)
	// A request in flight: its body is not complete when the server is to stop.
	slow := leaving.beginSlowRequest()

	// Endpoints notice within the sleep of the server that the pod leaves: clients send until then.
	server := b.template.Spec.Containers[0]
	sleep := time.Duration(server.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	time.Sleep(sleep / 2) // the manifest's: kubelet sleeps
	load.more(500)
	load.stop()
	probes.stop()
	leaving.signal(server, "TERM")
	sidecar := leaving.address(b.edgelimit(), "health")
	slow.finish()
	leaving.exited(server, func() {
		if status, err := get(sidecar, "/livez"); status != http.StatusOK {
			t.Errorf("the sidecar does not answer before the server has gone: %d %v", status, err)
		}
	})
	if status, err := get(sidecar, "/readyz"); status != http.StatusOK {
		t.Errorf("once the server has gone, the sidecar answers %d %v", status, err)
	}
	began := time.Now()
	leaving.signal(b.edgelimit(), "TERM")
	leaving.exited(b.edgelimit(), func() {})
	left := time.Duration(*b.template.Spec.TerminationGracePeriodSeconds)*time.Second - sleep
	if took := time.Since(began); took > left {
		t.Errorf("the sidecar took %v to end, kubelet kills it after %v", took, left)
	}
	t.Logf("%d requests, none failed; the sidecar ended within %v", load.answered.Load(), time.Since(began))

	staying := startLoad(t, pods[1].address(b.edgelimit(), "limited"))
	staying.more(100)
	staying.stop()
}

// podImage builds an image of the product, with the testnet's shop beside it as the server.
func podImage(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	for program, pkg := range map[string]string{"edgelimit": "./cmd/edgelimit", "shop": "./testnet/node"} {
		t.Setenv("CGO_ENABLED", "0")
		// As testnet/cluster compiles them for its images: what that has built is there.
		run(t, "../..", "go", "build", "-trimpath", "-tags", "grpcnotrace,urfave_cli_no_docs", "-ldflags", "-s -w",
			"-o", filepath.Join(dir, program), pkg)
	}
	recipe := "FROM scratch\nCOPY edgelimit shop /\nENTRYPOINT [\"/edgelimit\"]\n"
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(recipe), 0o600); err != nil {
		t.Fatal(err)
	}
	docker(t, "build", "--quiet", "--tag", name, dir)
	t.Cleanup(func() { removeAll(t, "rmi", name) })
	return name
}

// podFiles writes the ConfigMaps, and a secret with a new key, as folders named by the volumes. The only thing changed
// is the limit: all clients of the test have one address.
func podFiles(t *testing.T, b *built) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := b.template.Spec
	for _, v := range spec.Volumes {
		dir := filepath.Join(folder, v.Name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if v.Secret != nil {
			key := filepath.Join(dir, "cluster.key")
			run(t, "../..", "go", "run", "./cmd/edgelimit", "keygen", "--out", key)
			user, group := int(*spec.SecurityContext.RunAsUser), int(*spec.SecurityContext.FSGroup)
			if err := os.Chown(key, user, group); err != nil {
				t.Fatalf("run this test as root: %v", err)
			}
			continue
		}
		for name, text := range b.configs[v.ConfigMap.Name].Data {
			if name == "rules.yaml" {
				raised := strings.Replace(text, "requests_per_unit: 100}", "requests_per_unit: 100000000}", 1)
				if raised == text {
					t.Fatalf("the limit in %s is not the one that this test raises", name)
				}
				text = raised
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return folder
}

// startPod starts a pod's containers in the order of kubelet. The names that its nodes join stand for all pods, as
// those of a headless Service do.
func startPod(t *testing.T, b *built, project, name, image, folder string) *pod {
	t.Helper()
	p := &pod{t: t, name: project + "-" + name, image: image, folder: folder, manifest: b}
	args := []string{"run", "--detach", "--name", p.name, "--network", project}
	for _, seed := range strings.Split(variables(b.edgelimit())["EDGELIMIT_JOIN"], ",") {
		seed, _, _ = strings.Cut(strings.TrimPrefix(seed, "wan:"), ":")
		args = append(args, "--network-alias", seed)
	}
	// The sandbox has nothing to do but to hold the network.
	docker(t, append(args, "--entrypoint", "/shop", image, "shop", "--listen", "127.0.0.1:1")...)
	t.Cleanup(func() { removeAll(t, "rm", "--force", p.name) })
	p.ip = docker(t, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", p.name)
	for _, c := range b.containers() {
		p.start(c)
		if c.StartupProbe != nil {
			p.startup(c)
		}
	}
	server := b.template.Spec.Containers[0]
	p.await("the server is ready", func() bool { return p.ask(server, server.ReadinessProbe) == nil })
	return p
}

// start starts a container with the manifest's arguments, environment, mounts, user and rights.
func (p *pod) start(c corev1.Container) {
	p.t.Helper()
	user := p.manifest.template.Spec.SecurityContext
	args := []string{"run", "--detach", "--name", p.name + "-" + c.Name, "--network", "container:" + p.name,
		"--user", fmt.Sprintf("%d:%d", *user.RunAsUser, *user.RunAsGroup), "--security-opt", "no-new-privileges"}
	if *c.SecurityContext.ReadOnlyRootFilesystem {
		args = append(args, "--read-only")
	}
	for _, capability := range c.SecurityContext.Capabilities.Drop {
		args = append(args, "--cap-drop", string(capability))
	}
	if memory := c.Resources.Limits.Memory(); !memory.IsZero() {
		args = append(args, "--memory", fmt.Sprint(memory.Value()))
	}
	for _, m := range c.VolumeMounts {
		args = append(args, "--volume", filepath.Join(p.folder, m.Name, m.SubPath)+":"+m.MountPath+":ro")
	}
	values := make(map[string]string)
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"status.podIP": p.ip, "metadata.name": p.name}[e.ValueFrom.FieldRef.FieldPath]
		}
		values[e.Name] = regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(value,
			func(quoted string) string { return values[quoted[2:len(quoted)-1]] })
		args = append(args, "--env", e.Name+"="+values[e.Name])
	}
	if c.Name == p.manifest.edgelimit().Name {
		args = append(append(args, p.image), c.Args...)
	} else { // the manifest's is the user's: the testnet's shop at its port
		args = append(args, "--entrypoint", "/shop", p.image, "shop", "--listen",
			fmt.Sprintf(":%d", c.Ports[0].ContainerPort))
	}
	docker(p.t, args...)
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.t.Logf("%s logged: %s", c.Name, docker(p.t, "logs", p.name+"-"+c.Name))
		}
		removeAll(p.t, "rm", "--force", p.name+"-"+c.Name)
	})
}

// removeAll runs a docker command for what the test started, and fails the test if that stays.
func removeAll(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitAtMost)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "docker", args...).CombinedOutput(); err != nil {
		t.Errorf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// address returns where the pod serves a named port.
func (p *pod) address(c corev1.Container, port string) string {
	for _, have := range c.Ports {
		if have.Name == port {
			return net.JoinHostPort(p.ip, fmt.Sprint(have.ContainerPort))
		}
	}
	p.t.Fatalf("%s has no port %s", c.Name, port)
	return ""
}

// get asks over a connection of its own, as kubelet does.
func get(addr, path string) (status int, err error) {
	return getWithin(time.Second, addr, path)
}

func getWithin(timeout time.Duration, addr, path string) (status int, err error) {
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}
	resp, err := web.Get("http://" + addr + path)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// ask runs a probe once.
func (p *pod) ask(c corev1.Container, probe *corev1.Probe) error {
	status, err := getWithin(time.Duration(max(1, probe.TimeoutSeconds))*time.Second,
		p.address(c, probe.HTTPGet.Port.StrVal), probe.HTTPGet.Path)
	if err == nil && (status < 200 || status > 399) {
		err = fmt.Errorf("status %d", status)
	}
	return err
}

// startup runs a container's startup probe until it succeeds, or has failed as often as it may.
func (p *pod) startup(c corev1.Container) {
	p.t.Helper()
	var err error
	for range c.StartupProbe.FailureThreshold {
		if err = p.ask(c, c.StartupProbe); err == nil {
			return
		}
		time.Sleep(time.Duration(c.StartupProbe.PeriodSeconds) * time.Second) // the manifest's period
	}
	p.t.Fatalf("%s: the startup probe fails, and kubelet kills it: %v", c.Name, err)
}

// probing runs probes in their periods until stop.
type probing struct {
	end  chan struct{}
	done sync.WaitGroup
}

func (p *probing) stop() {
	close(p.end)
	p.done.Wait()
}

// probe runs the readiness and liveness probes of all containers, and fails the test where kubelet would act.
func (p *pod) probe() *probing {
	running := &probing{end: make(chan struct{})}
	for _, c := range p.manifest.containers() {
		for kind, probe := range map[string]*corev1.Probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if probe != nil {
				running.done.Go(func() { p.repeat(c, kind, probe, running.end) })
			}
		}
	}
	return running
}

func (p *pod) repeat(c corev1.Container, kind string, probe *corev1.Probe, end <-chan struct{}) {
	allowed := probe.FailureThreshold
	if allowed == 0 {
		allowed = 3 // Kubernetes' default
	}
	for failures := int32(0); ; {
		err := p.ask(c, probe)
		if failures++; err == nil {
			failures = 0
		}
		if failures == allowed {
			p.t.Errorf("%s: the %s probe has failed %d times in a row: %v", c.Name, kind, failures, err)
		}
		select {
		case <-end:
			return
		case <-time.After(time.Duration(probe.PeriodSeconds) * time.Second):
		}
	}
}

func (p *pod) await(what string, holds func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(waitAtMost); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: not within %v: %s", p.name, waitAtMost, what)
		}
	}
}

func (p *pod) signal(c corev1.Container, name string) {
	p.t.Helper()
	docker(p.t, "kill", "--signal", name, p.name+"-"+c.Name)
}

// reachesPeer reports whether the pod's node knows one other node, and reaches it.
func (p *pod) reachesPeer() bool {
	resp, err := http.Get("http://" + p.address(p.manifest.edgelimit(), "health") + "/metrics")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(text), "edgelimit_members{region=\"eu-west\"} 1\n") &&
		strings.Contains(string(text), "edgelimit_unreachable_peers 0\n")
}

// exited waits until a container has ended by itself with status 0, and calls meanwhile until then.
func (p *pod) exited(c corev1.Container, meanwhile func()) {
	p.t.Helper()
	var state struct {
		Running  bool
		ExitCode int
	}
	p.await(c.Name+" has ended", func() bool {
		meanwhile()
		text := docker(p.t, "inspect", "--format", "{{json .State}}", p.name+"-"+c.Name)
		return json.Unmarshal([]byte(text), &state) == nil && !state.Running
	})
	if state.ExitCode != 0 {
		p.t.Errorf("%s: exit status %d", c.Name, state.ExitCode)
	}
}

// load is what clients send until stop, over connections that they keep.
type load struct {
	t        *testing.T
	answered atomic.Int64
	failed   atomic.Int64
	end      chan struct{}
	clients  sync.WaitGroup
}

func startLoad(t *testing.T, addr string) *load {
	l := &load{t: t, end: make(chan struct{})}
	for range 4 {
		l.clients.Go(func() {
			web := &http.Client{Transport: &http.Transport{}, Timeout: waitAtMost}
			defer web.CloseIdleConnections()
			for {
				select {
				case <-l.end:
					return
				default:
				}
				resp, err := web.Get("http://" + addr + "/buy")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if l.answered.Add(1); err != nil ||
					resp.StatusCode != http.StatusOK || resp.Header.Get("RateLimit") == "" {
					l.failed.Add(1)
					t.Errorf("a request failed: %v %v", resp, err)
					return
				}
			}
		})
	}
	return l
}

// more waits for so many more answers.
func (l *load) more(n int64) {
	l.t.Helper()
	want := l.answered.Load() + n
	for deadline := time.Now().Add(waitAtMost); l.answered.Load() < want && l.failed.Load() == 0; {
		if time.Now().After(deadline) {
			l.t.Fatalf("not within %v: %d more answers", waitAtMost, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func (l *load) stop() {
	close(l.end)
	l.clients.Wait()
}

// slowRequest is a login whose body is half sent.
type slowRequest struct {
	t    *testing.T
	conn net.Conn
}

const login = "password=right"

func (p *pod) beginSlowRequest() *slowRequest {
	p.t.Helper()
	conn, err := net.Dial("tcp", p.address(p.manifest.edgelimit(), "limited"))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitAtMost))
	_, err = fmt.Fprintf(conn, "POST /login HTTP/1.1\r\nHost: shop\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", len(login), login[:4])
	if err != nil {
		p.t.Fatal(err)
	}
	return &slowRequest{p.t, conn}
}

// finish sends the rest, and holds that the request succeeds.
func (s *slowRequest) finish() {
	s.t.Helper()
	if _, err := io.WriteString(s.conn, login[4:]); err != nil {
		s.t.Fatal(err)
	}
	answer := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(s.conn, answer); err != nil || string(answer) != "HTTP/1.1 200" {
		s.t.Errorf("the request in flight: %q %v", answer, err)
	}
}
