package deploy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const top = "../.."

func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(top, "compose.yaml")}, cli.WithWorkingDirectory(top))
	require.NoError(t, err)
	p, err := options.LoadProject(context.Background())
	require.NoError(t, err, "compose.yaml keeps the specification")
	return p
}

// mounted is where a file of the repository is inside of a service.
func mounted(t *testing.T, p *types.Project, service string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, v := range p.Services[service].Volumes {
		if v.Type == types.VolumeTypeBind {
			info, err := os.Stat(v.Source)
			if assert.NoError(t, err, "%s mounts what is not there", service) {
				assert.False(t, info.IsDir(), v.Source)
			}
			all[v.Target] = v.Source
		}
	}
	return all
}

func TestComposeHasAllServices(t *testing.T) {
	p := project(t)
	require.ElementsMatch(t, []string{"redis", "shop", "prometheus", "grafana"}, p.ServiceNames())
	require.Equal(t, 3, *p.Services["shop"].Deploy.Replicas)
	for name, s := range p.Services {
		mounted(t, p, name)
		if s.Build == nil {
			assert.Regexp(t, `:v?\d+\.\d+`, s.Image, "%s: an image has a version", name)
		}
		for _, port := range s.Ports {
			assert.Equal(t, "127.0.0.1", port.HostIP, "%s: no password, so for this machine only", name)
		}
	}
	file, err := os.ReadFile(filepath.Join(p.Services["shop"].Build.Context, p.Services["shop"].Build.Dockerfile))
	require.NoError(t, err)
	require.Contains(t, string(file), " AS "+p.Services["shop"].Build.Target+"\n")
}

// TestShopsKnowTheirFlags lets the program judge its command line, up to the point where it would need the directory.
func TestShopsKnowTheirFlags(t *testing.T) {
	args := slices.Clone([]string(project(t).Services["shop"].Command))
	for i, arg := range args {
		args[i] = strings.ReplaceAll(strings.ReplaceAll(arg, "/data/", "/no such directory/"), "redis:6379", "127.0.0.1:1")
	}
	cmd := exec.Command("go", append([]string{"run", "./flashsale/full"}, args...)...)
	cmd.Dir = filepath.Join(top, "example")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "connection refused", "all flags are right, and then Redis is missing")
	require.NotContains(t, string(out), "exit status 2")
}

// TestPrometheusAndGrafanaFindTheirFiles follows the paths inside of the containers back to the repository.
func TestPrometheusAndGrafanaFindTheirFiles(t *testing.T) {
	p := project(t)
	files := mounted(t, p, "prometheus")
	var config struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			DNS []struct {
				Names []string
				Port  uint32
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, files["/etc/prometheus/prometheus.yml"], &config)
	for _, rules := range config.Rules {
		require.Contains(t, files, rules)
	}
	shops := config.Scrape[0].DNS[0]
	require.Equal(t, []string{"shop"}, shops.Names)
	require.Equal(t, p.Services["shop"].Ports[0].Target, shops.Port)

	files = mounted(t, p, "grafana")
	var boards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, files["/etc/grafana/provisioning/dashboards/wllock.yaml"], &boards)
	home := *p.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	require.Equal(t, boards.Providers[0].Options.Path, filepath.Dir(home))
	require.Contains(t, files, home)
	var sources struct{ Datasources []struct{ URL string } }
	readYAML(t, files["/etc/grafana/provisioning/datasources/wllock.yaml"], &sources)
	require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)
}

func readYAML(t *testing.T, name string, to any) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, to))
}

// actionlint is not in go.mod: it and compose-go need different candidates of yaml v4.
const actionlint = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"

// TestWorkflows: names, expressions, inputs of actions, and that what they run is there.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(top, ".github/workflows/*.yml"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	lint := exec.Command("go", append([]string{"run", actionlint}, files...)...)
	out, err := lint.CombinedOutput()
	require.NoError(t, err, "%s", out)
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotRegexp(t, `uses: \S+@v`, string(text), "%s: an action by its tag, which can be moved", file)
		for _, m := range regexp.MustCompile(`- run: (?:make (\S+)|((?:tools|\.ci)/\S+))`).FindAllStringSubmatch(string(text), -1) {
			if m[1] != "" {
				assert.Contains(t, string(makefile), "\n"+m[1]+":", file)
				continue
			}
			info, err := os.Stat(filepath.Join(top, m[2]))
			if assert.NoError(t, err) {
				assert.NotZero(t, info.Mode()&0o111, "%s can be run", m[2])
			}
		}
	}
}
