// Package deploy checks what runs wllock elsewhere: compose.yaml with the files that it mounts, and the workflows.
package deploy
