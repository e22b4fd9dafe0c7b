package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/edgelimit/edgelimit/gossip"
	"github.com/edgelimit/edgelimit/node/files"
	"github.com/edgelimit/edgelimit/node/status"
)

// secrets are files with secrets that are read again when they change. TLS files are not among them, nor the passwords
// of Redis, which are read for each connection.
type secrets struct {
	files []*secretFile // complete before Run
	asked chan struct{} // to read them
}

// secretFile is one of them. While it cannot be used, the secrets that it had last stay in use.
type secretFile struct {
	setting, name string
	load          func() error // reads the file, and puts its secrets in use
	bad           atomic.Bool
	why           string // it is; only watchSecrets uses it
}

func newSecrets() secrets { return secrets{asked: make(chan struct{}, 1)} }

// add adds a file, unless the name is empty.
func (s *secrets) add(setting, name string, load func() error) {
	if name != "" {
		s.files = append(s.files, &secretFile{setting: setting, name: name, load: load})
	}
}

// reread has watchSecrets read the files now, or once it runs. It does not wait.
func (s *secrets) reread() {
	select {
	case s.asked <- struct{}{}:
	default:
	}
}

// watchSecrets reads the files again when they change, until ctx ends.
func (n *Node) watchSecrets(ctx context.Context) {
	if len(n.secrets.files) == 0 {
		return
	}
	var paths []string
	for _, f := range n.secrets.files {
		paths = append(paths, f.name)
	}
	notifier := files.NewNotifier("secrets", n.cfg.RulesPoll, n.log)
	defer notifier.Close()
	notifier.Follow(ctx.Done(), n.secrets.asked, n.cfg.RulesPoll, paths, func() {
		for _, f := range n.secrets.files {
			n.reload(f)
		}
	})
}

func (n *Node) reload(f *secretFile) {
	why := ""
	if err := f.load(); err != nil {
		why = err.Error()
	}
	f.bad.Store(why != "")
	switch was := f.why; {
	case why != "" && why != was:
		n.log.Error("a file with secrets cannot be used: those that it had last stay in use", "setting", f.setting,
			"error", why)
	case why == "" && was != "":
		n.log.Info("a file with secrets is good again", "setting", f.setting, "file", f.name)
	}
	f.why = why
}

var errOtherIdentity = errors.New("its identity key is another one than the node began with: put the former one " +
	"back, or start all nodes again with the new one, which starts all counts anew")

// loadKeys puts the gossip keys of the key file in use. The identity key stays what it is.
func (n *Node) loadKeys() error {
	keys, err := ReadKeyFile(n.cfg.Gossip.KeyFile)
	switch {
	case err != nil:
		return err
	case keys.Identity != n.secret:
		return fmt.Errorf("key file %s: %w", n.cfg.Gossip.KeyFile, errOtherIdentity)
	}
	before := n.cluster.Self().Keys
	if err := n.cluster.SetKeys(keys.Gossip); err != nil {
		return fmt.Errorf("key file %s: %w", n.cfg.Gossip.KeyFile, err)
	}
	if now := n.cluster.Self().Keys; now != before {
		names := keyNames(now)
		n.log.Info("gossip keys in use", "sends_by", names[0], "accepts", strings.Join(names, " "))
	}
	return nil
}

func (n *Node) loadRESPPassword() error {
	password, err := ReadPassword(n.cfg.RESPPasswordFile)
	if err == nil {
		n.resp.SetPassword(password)
	}
	return err
}

func (n *Node) loadTokens() error {
	text, err := readSecret(n.cfg.AdminTokensFile)
	if err != nil {
		return err
	}
	if err = n.access.SetTokens(text); err != nil {
		err = fmt.Errorf("%s: %w", n.cfg.AdminTokensFile, err)
	}
	return err
}

// KeyName is how a gossip key is named where operators see it: by its fingerprint.
func KeyName(key []byte) string { return keyName(gossip.KeyFingerprint(key)) }

func keyName(fingerprint uint64) string { return fmt.Sprintf("%016x", fingerprint) }

func keyNames(fingerprints [gossip.MaxKeys]uint64) []string {
	names := []string{}
	for _, k := range fingerprints {
		if k != 0 {
			names = append(names, keyName(k))
		}
	}
	return names
}

// KeyHolders returns which gossip keys the nodes of the cluster have, this one first: those in the membership, and
// those that left it without a goodbye, for a quarter of an hour. The last has no name where there may be nodes that
// this one does not know, as behind seeds that do not answer.
func (n *Node) KeyHolders() []status.KeyHolder {
	self := n.cluster.Self()
	all := []status.KeyHolder{{Node: self.NodeID, Region: self.Region, State: "this node", Keys: keyNames(self.Keys)}}
	for _, p := range n.cluster.Peers() {
		state := "member"
		if p.Pool == "" {
			state = "unreachable"
		}
		all = append(all, status.KeyHolder{Node: p.NodeID, Region: p.Region, State: state, Keys: keyNames(p.Keys)})
	}
	if blind, _ := n.cluster.Blind(); blind {
		all = append(all, status.KeyHolder{State: "unknown", Keys: []string{}})
	}
	return all
}
