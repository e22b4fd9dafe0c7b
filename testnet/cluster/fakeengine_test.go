package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/edgelimit/edgelimit/node"
)

// fakeEngine is a Docker Engine in memory: it understands the commands that the package gives, changes its containers
// accordingly, and remembers the commands. Its fields may be set before it is used; its methods are safe for concurrent
// use.
type fakeEngine struct {
	// Images are the names of the images that exist.
	Images []string
	// Missing are the programs that are not installed.
	Missing []string
	// Fail, if set, is called before each command, which ends with its error.
	Fail func(Command) error
	// Compose runs compose commands: up or down, with the services named, or version; nil: nothing.
	Compose func(e *fakeEngine, verb string, services []string, c Command)
	// Redis answers redis-cli; nil: PONG to PING, OK to all else.
	Redis func(c *fakeContainer, args []string) string
	// Changed, if set, is called after each change, with fakeEngine locked.
	Changed func(all []*fakeContainer)

	key        bytes.Buffer // the key file
	mu         sync.Mutex
	containers []*fakeContainer
	commands   []Command
}

// Add gives the engine a container.
func (e *fakeEngine) Add(c *fakeContainer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers = append(e.containers, c)
	e.changed()
}

// Change changes the container of that name, or panics if there is none.
func (e *fakeEngine) Change(name string, change func(c *fakeContainer)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.containers {
		if c.Name == name {
			change(c)
			e.changed()
			return
		}
	}
	panic("no container " + name)
}

// Get returns a copy of the container of that name, or panics if there is none.
func (e *fakeEngine) Get(name string) (got fakeContainer) {
	e.Change(name, func(c *fakeContainer) { got = *c })
	return got
}

// Clear takes all containers away.
func (e *fakeEngine) Clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.containers = nil
	e.changed()
}

// Commands returns the command lines so far that contain the words.
func (e *fakeEngine) Commands(words string) (lines []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.commands {
		if strings.Contains(c.String(), words) {
			lines = append(lines, c.String())
		}
	}
	return lines
}

func (e *fakeEngine) changed() {
	if e.Changed != nil {
		e.Changed(e.containers)
	}
}

// Run implements Runner.
func (e *fakeEngine) Run(ctx context.Context, c Command) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	e.mu.Lock()
	e.commands = append(e.commands, c)
	e.mu.Unlock()
	if slices.Contains(e.Missing, c.Name) {
		return nil, &exec.Error{Name: c.Name, Err: exec.ErrNotFound}
	}
	if e.Fail != nil {
		if err := e.Fail(c); err != nil {
			return nil, err
		}
	}
	if verb, services, ok := parseCompose(c); ok {
		if e.Compose != nil {
			e.Compose(e, verb, services, c)
		}
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var out string
	var err error
	switch c.Name {
	case "docker":
		out, err = e.docker(c.Args)
	case "nsenter":
		out, err = e.nft(c.Args)
	default:
		err = fmt.Errorf("unknown command")
	}
	if err != nil {
		return nil, commandError(c, errors.New("exit status 1"), err.Error())
	}
	return []byte(out), nil
}

// parseCompose parses a compose command line.
func parseCompose(c Command) (verb string, services []string, ok bool) {
	args := c.Args
	if c.Name == "docker" && len(args) > 0 && args[0] == "compose" {
		args = args[1:]
	} else if c.Name != "docker-compose" {
		return "", nil, false
	}
	for i, a := range args {
		if a == "up" || a == "down" {
			for _, s := range args[i+1:] {
				if !strings.HasPrefix(s, "-") && s != "10" {
					services = append(services, s)
				}
			}
			return a, services, true
		}
	}
	return "version", nil, true
}

// docker runs a docker command. The lock is held.
func (e *fakeEngine) docker(args []string) (string, error) {
	last := args[len(args)-1]
	switch args[0] {
	case "version":
		return "20.10.24", nil
	case "images":
		if slices.Contains(e.Images, last) {
			return "0123456789ab", nil
		}
		return "", nil
	case "ps":
		return e.list(strings.TrimPrefix(last, "label=")), nil
	case "container":
		return e.inspect(args[2:])
	case "network":
		return "", e.network(args[1], args[2:])
	case "run", "rm":
		return "ran", nil
	case "exec", "top":
		last = args[1]
	case "cp": // ID:PATH FILE
		from, path, _ := strings.Cut(args[1], ":")
		if _, err := e.byID(from); err != nil || path != KeyFile {
			return "", fmt.Errorf("no such file: %s", args[1])
		}
		if e.key.Len() == 0 {
			_ = node.WriteKeyFile(&e.key)
		}
		return "", os.WriteFile(last, e.key.Bytes(), 0o600)
	}
	c, err := e.byID(last)
	if err != nil {
		return "", err
	}
	defer e.changed()
	switch args[0] {
	case "kill":
		return "", c.signal(args[2])
	case "stop":
		c.end(map[bool]int{true: 137}[c.IgnoresSIGTERM || c.Paused])
	case "start":
		c.start()
	case "top":
		stat := map[bool]string{true: "Tsl", false: "Ssl"}[c.Paused]
		return fmt.Sprintf("PID STAT\n%d %s\n%d Rs", c.PID, stat, c.PID+1), nil
	case "exec":
		return e.redis(c, args[3:]), nil
	case "logs":
		return "its last lines", nil
	default:
		return "", fmt.Errorf("docker: %q is not known to the fake", args)
	}
	return "", nil
}

func (e *fakeEngine) redis(c *fakeContainer, args []string) string {
	switch {
	case e.Redis != nil:
		return e.Redis(c, args)
	case args[0] == "PING":
		return "PONG"
	}
	return "OK"
}

func (e *fakeEngine) byID(id string) (*fakeContainer, error) {
	for _, c := range e.containers {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no such container: %s", id)
}

func (e *fakeEngine) list(label string) string {
	name, value, _ := strings.Cut(label, "=")
	var ids []string
	for _, c := range e.containers {
		if c.Labels[name] == value {
			ids = append(ids, c.ID)
		}
	}
	return strings.Join(ids, "\n")
}

func (e *fakeEngine) network(verb string, args []string) error {
	c, err := e.byID(args[len(args)-1])
	if err != nil {
		return err
	}
	defer e.changed()
	name := args[len(args)-2]
	_, on := c.Networks[name]
	if verb == "disconnect" {
		if !on {
			return fmt.Errorf("container %s is not connected to network %s", c.ID, name)
		}
		delete(c.Networks, name)
		delete(c.Aliases, name)
		return nil
	}
	if on {
		return fmt.Errorf("endpoint with name %s already exists in network %s", c.Name, name)
	}
	for i := 0; i+1 < len(args)-2; i += 2 {
		switch args[i] {
		case "--ip":
			c.Networks[name] = args[i+1]
		case "--alias":
			c.Aliases[name] = append(c.Aliases[name], args[i+1])
		}
	}
	return nil
}

// nft runs nft in the network namespace of a process.
func (e *fakeEngine) nft(args []string) (string, error) {
	commands := args[len(args)-1]
	for _, c := range e.containers {
		if c.PID == 0 || fmt.Sprint(c.PID) != args[1] {
			continue
		}
		defer e.changed()
		switch {
		case commands == "list tables":
			if c.Table == "" {
				return "table ip nat", nil
			}
			return "table ip nat\ntable inet edgelimit_testnet", nil
		case strings.HasPrefix(commands, "list table "):
			return c.Table, nil
		case strings.Contains(commands, "delete table"):
			c.Table = ""
		default:
			c.Table = commands
		}
		return "", nil
	}
	return "", fmt.Errorf("nsenter: cannot open /proc/%s/ns/net: No such file or directory", args[1])
}

func (e *fakeEngine) inspect(ids []string) (string, error) {
	var all []any
	for _, id := range ids {
		c, err := e.byID(id)
		if err != nil {
			return "", err
		}
		all = append(all, c.inspected())
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// fakeContainer is a container of the fake engine.
type fakeContainer struct {
	ID, Name        string
	Labels, Env     map[string]string
	State, Health   string
	ExitCode, PID   int
	NamespaceOf     string
	Networks        map[string]string // addresses by network
	Aliases         map[string][]string
	Ports           map[string]string // host:port by port of the container
	Paused          bool              // stopped by a signal
	Table           string            // nft's rules in its network namespace; empty: none
	IgnoresSIGTERM  bool
	FailsAtStarting bool
	IgnoresSTOP     bool
}

func (c *fakeContainer) signal(name string) error {
	if c.State != "running" {
		return fmt.Errorf("fakeContainer %s is not running", c.ID)
	}
	switch name {
	case "KILL":
		c.end(137)
	case "STOP":
		c.Paused = !c.IgnoresSTOP
	case "CONT":
		c.Paused = false
	}
	return nil
}

func (c *fakeContainer) end(code int) {
	c.State, c.ExitCode, c.PID, c.Paused, c.Table = "exited", code, 0, false, ""
}

func (c *fakeContainer) start() {
	if c.FailsAtStarting {
		c.end(2)
		return
	}
	c.State, c.ExitCode, c.PID = "running", 0, c.PID+1000
}

// inspected returns the container as docker inspect reports it.
func (c *fakeContainer) inspected() any {
	type object = map[string]any
	var env []string
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, name+"="+c.Env[name])
	}
	networks, ports := object{}, object{}
	for name, ip := range c.Networks {
		n := object{"IPAddress": ip, "IPAMConfig": object{"IPv4Address": ip}}
		if c.State != "running" {
			n["IPAddress"] = ""
		}
		networks[name] = n
	}
	for port, addr := range c.Ports {
		i := strings.LastIndex(addr, ":")
		ports[port] = []object{{"HostIp": addr[:i], "HostPort": addr[i+1:]}}
	}
	mode := "default"
	if c.NamespaceOf != "" {
		mode = "container:" + c.NamespaceOf
	}
	state := object{"Status": c.State, "Pid": c.PID, "ExitCode": c.ExitCode}
	if c.Health != "" {
		state["Health"] = object{"Status": c.Health}
	}
	return object{
		"Id": c.ID, "Name": "/" + c.Name, "State": state,
		"Config":          object{"Labels": c.Labels, "Env": env},
		"HostConfig":      object{"NetworkMode": mode, "PortBindings": ports},
		"NetworkSettings": object{"Networks": networks, "Ports": object{}},
	}
}
