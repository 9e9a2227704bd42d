//go:build !js

package main

import (
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/trace/collect"
)

// The parts of the recorder that import and report use; verbs_js.go has what stands for them in a browser.
var (
	makePlace = recorder.MakePlace
	openLive  = collect.OpenLive
)
