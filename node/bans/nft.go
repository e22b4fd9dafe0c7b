package bans

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// kernel keeps the sets of nftables as the bans are. The kernel itself drops an element at its end, so the sets stay
// right, if nothing more, where the node has gone. All that the node changes at a time is one transaction.
//
// At first, after a failure and every so often the sets are filled anew: what anybody else has put there, or taken out,
// does not last. Each run of nft fails where some of their elements are missing, so that a flushed ruleset or set is
// noticed at the next heartbeat, and filled anew.
type kernel struct {
	export   *Export
	applied  []entry // what the sets have, apart from what has ended
	known    bool    // applied is
	filled   time.Time
	restored uint64 // how often the sets lacked what they should have
}

const (
	// refill is how often the sets are filled anew, and files with timeouts written: it bounds how far the ends of long
	// bans are off where a set or file knows them less exactly.
	refill = 10 * time.Minute
	// almostOver is how much of a ban is left when it is not worth deleting: it may end in the kernel meanwhile.
	almostOver = 100 * time.Millisecond
)

// apply makes the sets have all entries at the time now.
func (k *kernel) apply(ctx context.Context, all []entry, now int64) error {
	update := k.known && time.Since(k.filled) < refill
	if update {
		err := k.run(ctx, script(func(w *bufio.Writer) {
			k.export.declareSets(w, false)
			k.writeProbes(w, now)
			k.writeChanges(w, all, now)
		}))
		if err == nil {
			k.applied = all
			return nil
		}
	}
	k.known = false
	err := k.run(ctx, script(func(w *bufio.Writer) { k.export.writeSets(w, all, now) }))
	if err != nil && strings.Contains(err.Error(), "Message too long") {
		err = k.fillInParts(ctx, all, now)
	}
	if err != nil {
		return err
	}
	if update { // nft works, so others have changed the sets
		k.restored++
	}
	k.applied, k.known, k.filled = all, true, time.Now()
	return nil
}

// script is what a function writes to it.
func script(write func(*bufio.Writer)) io.Reader {
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	write(w)
	_ = w.Flush() // to memory
	return &text
}

// elementsInPart is how many elements fit into the socket of whoever may not enlarge it (net.core.wmem_max).
const elementsInPart = 2000

// fillInParts fills the sets in several transactions. Meanwhile some elements are missing.
func (k *kernel) fillInParts(ctx context.Context, all []entry, now int64) error {
	err := k.run(ctx, script(func(w *bufio.Writer) { k.export.writeSets(w, nil, now) }))
	for part := range slices.Chunk(all, elementsInPart) {
		if err == nil {
			err = k.run(ctx, script(func(w *bufio.Writer) { k.export.writeElements(w, "add", part, now) }))
		}
	}
	return err
}

const (
	// probes is how many elements of a set each run looks for.
	probes = 8
	// probeMargin is how much of its ban an element has left that is looked for, so that it does not end meanwhile.
	probeMargin = time.Second
)

// writeProbes writes statements that change nothing, and fail unless the sets have some of the elements that were
// applied: the next ones of each set from a place chosen at random. To delete an element and add it again in one
// transaction costs the same in large sets, unlike nft's get and list, for which it fetches whole sets.
func (k *kernel) writeProbes(w *bufio.Writer, now int64) {
	var samples [len(nftSets)][]entry
	if len(k.applied) > 0 {
		from := rand.IntN(len(k.applied))
		for _, part := range [2][]entry{k.applied[from:], k.applied[:from]} {
			for i := range part {
				e := &part[i]
				if s := &samples[setOf(e)]; len(*s) < probes && e.ends > now+int64(probeMargin) {
					*s = append(*s, *e)
				}
			}
		}
	}
	for _, s := range samples {
		k.export.writeElements(w, "delete", s, now)
		k.export.writeElements(w, "add", s, now)
	}
}

// writeChanges writes a script from what was applied to all. An element to delete is added first, which does nothing if
// it is there: to delete one that has just ended would be an error.
func (k *kernel) writeChanges(w *bufio.Writer, all []entry, now int64) {
	var gone, added []entry
	diff(k.applied, all, func(before, after *entry) {
		if before != nil && (after != nil || before.ends > now+int64(almostOver)) {
			gone = append(gone, entry{before.key, now + int64(nftTimeout), before.bits})
		}
		if after != nil {
			added = append(added, *after)
		}
	})
	k.export.writeElements(w, "add", gone, now)
	k.export.writeElements(w, "delete", gone, now)
	k.export.writeElements(w, "add", added, now)
}

// nftTimeout is how long nft may take: 100,000 elements take it some half of a second.
const nftTimeout = 20 * time.Second

// run runs nft with a script on its standard input.
func (k *kernel) run(ctx context.Context, script io.Reader) error {
	path, err := k.program()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-f", "-")
	cmd.Stdin = script
	return output(cmd)
}

// program finds nft.
func (k *kernel) program() (string, error) {
	name := k.export.NFT
	if name == "" {
		name = "nft"
	}
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s: install nftables, or name it with nft", name)
}

// maxOutput is how much of a program's complaint is kept, in bytes.
const maxOutput = 400

// passedOn are the variables that commands get. Others may hold passwords of the node.
var passedOn = []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ"}

// output runs a command. Its error has the beginning of what the command says.
func output(cmd *exec.Cmd) error {
	var said head
	cmd.Env = []string{} // not nil, which is the node's
	for _, name := range passedOn {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
	if err := cmd.Run(); err != nil {
		text := strings.Join(strings.Fields(strings.ToValidUTF8(string(said), "?")), " ")
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, text)
	}
	return nil
}

// head keeps the first maxOutput bytes that are written to it.
type head []byte

func (h *head) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), maxOutput-len(*h))]...)
	return len(p), nil
}
