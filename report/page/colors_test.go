package page

import (
	"fmt"
	"image/color"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// leastDistance is how far apart colours have to be that appear together, in CIELAB.
const leastDistance = 10

// colorsOf are the colours of a theme in the style sheet, by name.
func colorsOf(t testing.TB, dark bool) map[string]color.NRGBA {
	t.Helper()
	style, err := content.ReadFile("html/style.css")
	assert.NoError(t, err)
	light, rest, _ := strings.Cut(string(style), `:root[data-theme="dark"]`)
	text := light
	if dark {
		text, _, _ = strings.Cut(rest, "}")
	}
	out := map[string]color.NRGBA{}
	for _, found := range regexp.MustCompile(`--([a-z0-9-]+): #([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2});`).FindAllStringSubmatch(text, -1) {
		c := color.NRGBA{A: 255}
		if _, err := fmt.Sscanf(found[2]+found[3]+found[4], "%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
			t.Fatal(err)
		}
		out[found[1]] = c
	}
	return out
}

// Colours that appear together are told apart with all cones and without each kind of them, in both themes.
func TestColorsAreToldApart(t *testing.T) {
	var series []string
	for i := range 10 {
		series = append(series, fmt.Sprintf("series-%d", i))
	}
	charts := map[string][]string{
		"timeline":    {"requested", "internal", "pending", "reserve", "surface"},
		"categories":  append(slices.Clone(series), "surface"),
		"address map": append(slices.Clone(series), "internal", "pending", "external", "reusable", "reserve", "unmapped"),
	}
	for _, dark := range []bool{false, true} {
		colors := colorsOf(t, dark)
		for chart, names := range charts {
			least, worst := 1e9, ""
			for i, a := range names {
				for _, b := range names[:i] {
					d, vision := reporttest.ColorDistance(colors[a], colors[b])
					if d < least {
						least, worst = d, a+" and "+b+", "+vision
					}
				}
			}
			t.Logf("%s, dark %v: the nearest are %s, %.1f apart", chart, dark, worst, least)
			assert.That(t, least >= leastDistance, "%s, dark %v: %s are %.1f apart, want at least %d", chart, dark, worst, least, leastDistance)
		}
	}
}

// The simulation sees what is known: without one kind of cones red and green may look alike, which others tell apart.
func TestColorDistance(t *testing.T) {
	red, green := color.NRGBA{0xb5, 0x65, 0x30, 255}, color.NRGBA{0x7c, 0x7c, 0x2b, 255}
	d, vision := reporttest.ColorDistance(red, green)
	assert.That(t, vision != "all" && d <= 12, "%.1f apart at least, %s", d, vision)
	if d, _ := reporttest.ColorDistance(color.NRGBA{0, 0, 0, 255}, color.NRGBA{255, 255, 255, 255}); d < 99 || d > 101 {
		t.Errorf("black and white are %.1f apart", d)
	}
}

// Plots have the colours of the page in light.
func TestColorsOfPlots(t *testing.T) {
	colors := colorsOf(t, false)
	for name, drawn := range map[string]color.NRGBA{"requested": figure.RequestedColor, "internal": figure.InternalColor} {
		assert.That(t, colors[name] == drawn, "%s is %v in plots, %v on the page", name, drawn, colors[name])
	}
}

// Every category has a colour on the page.
func TestColorsOfCategories(t *testing.T) {
	script, err := content.ReadFile("html/device.js")
	assert.NoError(t, err)
	for category := attribution.NoCategory + 1; category <= attribution.Other; category++ {
		found := regexp.MustCompile(`\['` + category.String() + `', \d\]`).Match(script)
		assert.That(t, found, "the page has no colour for %s", category)
	}
}
