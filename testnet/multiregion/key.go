package multiregion

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/edgelimit/edgelimit/node"
)

// keyFile is where the compose file looks for the cluster's secrets; git ignores its folder.
const keyFile = "testnet/compose/secrets/cluster.key"

// containerUser is the user and group of the containers.
const containerUser = 65532

// ensureKeyFile makes the key file unless it is there, readable by the containers' user.
func ensureKeyFile(root string) (made bool, err error) {
	name := filepath.Join(root, filepath.FromSlash(keyFile))
	if info, err := os.Stat(name); err == nil {
		if info.IsDir() {
			return false, fmt.Errorf("%s is a folder, which the engine makes of a file that was missing; remove it", name)
		}
		return false, nil
	}
	// Only its owner gets through the folder, and so to the file, whatever the file's mode; the engine mounts it as root.
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return false, err
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false, err
	}
	if err := errors.Join(node.WriteKeyFile(f), f.Close()); err != nil {
		return false, errors.Join(err, os.Remove(name))
	}
	err = os.Chown(name, containerUser, containerUser)
	if errors.Is(err, fs.ErrPermission) { // not root: then anybody in the container has to be let in, and the nodes warn of it
		err = os.Chmod(name, 0o444)
	}
	return err == nil, err
}
