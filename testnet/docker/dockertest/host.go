package dockertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/edgelimit/edgelimit/testnet/docker"
)

// Host implements docker.Runner. Its fields may be set before it is used; its methods are safe for concurrent use.
type Host struct {
	// Images are the names of the images there.
	Images []string
	// Missing are the programs that are not installed.
	Missing []string
	// Fail, if set, is asked before each command; an error is what the command ends with.
	Fail func(docker.Command) error
	// Compose does what compose is told: up or down, with the services named, or version; nil: nothing.
	Compose func(h *Host, verb string, services []string, c docker.Command)
	// Redis answers redis-cli; nil: PONG to PING, OK to all else.
	Redis func(c *Container, args []string) string
	// Changed, if set, is called after each change, with Host locked.
	Changed func(all []*Container)

	mu         sync.Mutex
	containers []*Container
	told       []docker.Command
}

// Add gives the engine a container.
func (h *Host) Add(c *Container) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.containers = append(h.containers, c)
	h.changed()
}

// Change changes the container of that name, or panics if there is none.
func (h *Host) Change(name string, change func(c *Container)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.containers {
		if c.Name == name {
			change(c)
			h.changed()
			return
		}
	}
	panic("dockertest: no container " + name)
}

// Get returns a copy of the container of that name, or panics if there is none.
func (h *Host) Get(name string) (got Container) {
	h.Change(name, func(c *Container) { got = *c })
	return got
}

// Clear takes all containers away.
func (h *Host) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.containers = nil
	h.changed()
}

// Told returns the command lines so far that contain the words.
func (h *Host) Told(words string) (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.told {
		if strings.Contains(c.String(), words) {
			lines = append(lines, c.String())
		}
	}
	return lines
}

func (h *Host) changed() {
	if h.Changed != nil {
		h.Changed(h.containers)
	}
}

// Run implements docker.Runner.
func (h *Host) Run(ctx context.Context, c docker.Command) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	h.mu.Lock()
	h.told = append(h.told, c)
	h.mu.Unlock()
	if slices.Contains(h.Missing, c.Name) {
		return nil, &exec.Error{Name: c.Name, Err: exec.ErrNotFound}
	}
	if h.Fail != nil {
		if err := h.Fail(c); err != nil {
			return nil, err
		}
	}
	if verb, services, ok := composed(c); ok {
		if h.Compose != nil {
			h.Compose(h, verb, services, c)
		}
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var out string
	var err error
	switch c.Name {
	case "docker":
		out, err = h.docker(c.Args)
	case "nsenter":
		out, err = h.nft(c.Args)
	default:
		err = fmt.Errorf("unknown command")
	}
	if err != nil {
		return nil, &docker.CommandError{Command: c, Said: err.Error(), Err: errors.New("exit status 1")}
	}
	return []byte(out), nil
}

// composed takes a compose command line apart.
func composed(c docker.Command) (verb string, services []string, ok bool) {
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

// docker obeys a docker command. The lock is held.
func (h *Host) docker(args []string) (string, error) {
	last := args[len(args)-1]
	switch args[0] {
	case "version":
		return "20.10.24", nil
	case "images":
		if slices.Contains(h.Images, last) {
			return "0123456789ab", nil
		}
		return "", nil
	case "ps":
		return h.list(strings.TrimPrefix(last, "label=")), nil
	case "container":
		return h.inspect(args[2:])
	case "network":
		return "", h.network(args[1], args[2:])
	case "exec", "top":
		last = args[1]
	}
	c, err := h.byID(last)
	if err != nil {
		return "", err
	}
	defer h.changed()
	switch args[0] {
	case "kill":
		return "", c.signal(args[2])
	case "stop":
		c.end(map[bool]int{true: 137}[c.IgnoresSIGTERM || c.Paused])
	case "start":
		c.start()
	case "top":
		return fmt.Sprintf("PID STAT\n%d %s\n%d Rs", c.PID, map[bool]string{true: "Tsl", false: "Ssl"}[c.Paused], c.PID+1), nil
	case "exec":
		return h.redis(c, args[3:]), nil
	case "logs":
		return "what it said last", nil
	default:
		return "", fmt.Errorf("docker: %q is not understood here", args)
	}
	return "", nil
}

func (h *Host) redis(c *Container, args []string) string {
	switch {
	case h.Redis != nil:
		return h.Redis(c, args)
	case args[0] == "PING":
		return "PONG"
	}
	return "OK"
}

func (h *Host) byID(id string) (*Container, error) {
	for _, c := range h.containers {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, fmt.Errorf("no such container: %s", id)
}

func (h *Host) list(label string) string {
	name, value, _ := strings.Cut(label, "=")
	var ids []string
	for _, c := range h.containers {
		if c.Labels[name] == value {
			ids = append(ids, c.ID)
		}
	}
	return strings.Join(ids, "\n")
}

func (h *Host) network(verb string, args []string) error {
	c, err := h.byID(args[len(args)-1])
	if err != nil {
		return err
	}
	defer h.changed()
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

// nft obeys nft in the network namespace of a process: it remembers rules that are added, and gives them back.
func (h *Host) nft(args []string) (string, error) {
	commands := args[len(args)-1]
	for _, c := range h.containers {
		if c.PID == 0 || fmt.Sprint(c.PID) != args[1] {
			continue
		}
		defer h.changed()
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

func (h *Host) inspect(ids []string) (string, error) {
	var all []any
	for _, id := range ids {
		c, err := h.byID(id)
		if err != nil {
			return "", err
		}
		all = append(all, c.inspected())
	}
	b, err := json.Marshal(all)
	return string(b), err
}
