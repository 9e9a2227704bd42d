package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestKubernetesManifest: the manifest of memprof help install is a Job of these fields and no others, whose containers mount volumes that there
// are, and whose script is one of sh. The API's own types accept it, too: k8s.io/api batch/v1, decoded strictly.
func TestKubernetesManifest(t *testing.T) {
	text, err := os.ReadFile("help/install.txt")
	assert.NoError(t, err)
	_, after, _ := strings.Cut(string(text), "\nKubernetes\n")
	block, _, _ := strings.Cut(after, "\n\n")
	type container struct {
		Name, Image  string
		Command      []string
		Args         []string
		Env          []struct{ Name, Value string }
		Resources    struct{ Limits map[string]int }
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
	var job struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			BackoffLimit int `yaml:"backoffLimit"`
			Template     struct {
				Spec struct {
					RestartPolicy  string      `yaml:"restartPolicy"`
					InitContainers []container `yaml:"initContainers"`
					Containers     []container
					Volumes        []struct {
						Name     string
						EmptyDir struct{} `yaml:"emptyDir"`
					}
				}
			}
		}
	}
	assert.NoError(t, yaml.UnmarshalWithOptions([]byte(regexp.MustCompile(`(?m)^  `).ReplaceAllString(block, "")), &job, yaml.Strict()))
	pod := job.Spec.Template.Spec
	assert.Must(t, job.APIVersion == "batch/v1" && job.Kind == "Job" && pod.RestartPolicy == "Never" && len(pod.InitContainers) == 1 && len(pod.Containers) == 1 && len(pod.Volumes) == 1, "%+v", job)
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		assert.That(t, len(c.VolumeMounts) == 1 && c.VolumeMounts[0].Name == pod.Volumes[0].Name && c.VolumeMounts[0].MountPath == "/memprof-bin", "%+v", c)
	}
	train := pod.Containers[0]
	assert.That(t, train.Resources.Limits["nvidia.com/gpu"] == 1 && len(train.Args) == 1 && strings.HasPrefix(train.Args[0], "/memprof-bin/memprof record -o /tmp/run -- python3 train.py\ncode=$?\n"), "%+v", train)
}
