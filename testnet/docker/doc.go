// Package docker talks to a Docker Engine through the docker and compose commands of this machine.
//
// It knows nothing of edgelimit. It never touches what it was not given by name: whoever uses it picks containers by the label of
// their compose project.
package docker
