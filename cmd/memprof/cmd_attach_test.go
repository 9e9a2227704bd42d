//go:build !js

package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestCheckPeer: only the process's own user may answer for it.
func TestCheckPeer(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "a.sock"))
	assert.That(t, err == nil, "%v", err)
	defer listener.Close()
	conn, err := net.Dial("unix", listener.Addr().String())
	assert.That(t, err == nil, "%v", err)
	defer conn.Close()
	me := uint32(os.Geteuid())
	err = checkPeer(conn.(*net.UnixConn), me)
	assert.That(t, err == nil, "the own user: %v", err)
	err = checkPeer(conn.(*net.UnixConn), me+1)
	assert.That(t, err != nil, "another user's socket is trusted")
}
