package vcsharding

import (
	"fmt"
	"strings"
	"testing"
)

// conf is as an installation of Volcano has it, in the form with policies.
const conf = `
schedulerConfigs:
- name: agent-scheduler
  type: agent
  policies:
  - name: allocation-rate
    weight: 2
    arguments: {minCPUUtil: 0.7, maxCPUUtil: 1.0}
  - name: warmup
  - name: node-limit
    arguments: {minNodes: 1, maxNodes: "100"}
- name: volcano
  type: volcano
  policies:
  - name: allocation-rate
    arguments: {maxCPUUtil: 0.69}
  - name: node-limit
    arguments: {minNodes: 1}
shardSyncPeriod: "60s"
enableNodeEventTrigger: true
`

// older is the same in the older form.
const older = `
schedulerConfigs:
  - name: agent-scheduler
    type: agent
    cpuUtilizationMin: 0.7
    cpuUtilizationMax: 1.0
    preferWarmupNodes: true
    minNodes: 1
    maxNodes: 100
  - name: volcano
    type: volcano
    cpuUtilizationMin: 0.0
    cpuUtilizationMax: 0.69
    preferWarmupNodes: false
    minNodes: 1
    maxNodes: 5000
shardSyncPeriod: "60s"
enableNodeEventTrigger: true
`

// TestForms: both forms are read, and mean the same but for weights.
func TestForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		conf:                            "{[{agent-scheduler 700000 1000000 2 1 1 100} {volcano 0 690000 1 0 1 5000}] 60000000000 true }",
		older:                           "{[{agent-scheduler 700000 1000000 1 1 1 100} {volcano 0 690000 1 0 1 5000}] 60000000000 true }",
		"schedulerConfigs: [{name: a}]": "{[{a 0 1000000 0 0 0 5000}] 60000000000 false }",
		"schedulerConfigs: [{name: a, policies: [{name: warmup, arguments: {x: 1, z: 2}}]}]": `{[{a 0 1000000 0 1 0 5000}] 60000000000 false schedulerConfigs[0].policies[0].arguments: "x" is none of policy warmup}`,
	} { // order: each on its own
		c, err := readConfig(text)
		if err != nil || fmt.Sprint(*c) != want {
			t.Errorf("%s\nis %v, %v; want %s", text, c, err, want)
		}
	}
}

// TestOdd: what is not known is told.
func TestOdd(t *testing.T) {
	t.Parallel()
	if c, err := readConfig(conf + "dance: yes"); err != nil || !strings.Contains(c.odd, "dance") {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestBadConfigs: what is refused, with the field and the rule.
func TestBadConfigs(t *testing.T) {
	t.Parallel()
	one := func(fields string) string { return "schedulerConfigs: [{name: a, " + fields + "}]" }
	policy := func(name, arguments string) string {
		return one("policies: [{name: " + name + ", arguments: {" + arguments + "}}]")
	}
	for text, want := range map[string]string{
		"":                                   "schedulerConfigs: there are 0 schedulers; from 1 to 64 are needed",
		"{":                                  "it cannot be read: ",
		strings.Repeat("#", LongestConfig+1): "it has 65537 bytes, of at most 65536",
		"schedulerConfigs: [{name: A_B}]":    `schedulerConfigs[0].name: "A_B" must be the name of a NodeShard, and in no other place`,
		"schedulerConfigs: [{name: a}, {name: a}]":                `schedulerConfigs[1].name: "a" must be`,
		"schedulerConfigs: [{name: a}]\nshardSyncPeriod: 1ms":     `shardSyncPeriod: "1ms" must be a duration from 1s to 24h0m0s`,
		one("minNodes: 1, policies: [{name: warmup}]"):            "schedulerConfigs[0].policies: they exclude the older fields beside them",
		one("policies: [{name: dance}]"):                          `schedulerConfigs[0].policies[0].name: "dance": there is no such policy; known: allocation-rate, node-limit, warmup`,
		one("policies: [{name: warmup}, {name: warmup}]"):         `schedulerConfigs[0].policies[1].name: "warmup" is there twice`,
		one("policies: [{name: warmup, weight: 1001}]"):           "schedulerConfigs[0].policies[0].weight: 1001 must be from 0 to 1000",
		policy("allocation-rate", "minCPUUtil: 2"):                "arguments.minCPUUtil: 2 must be a number from 0 to 1",
		policy("allocation-rate", "minCPUUtil: nan"):              "must be a number from 0 to 1",
		policy("allocation-rate", "minCPUUtil: 1, maxCPUUtil: 0"): "arguments.minCPUUtil: it must be at most arguments.maxCPUUtil",
		policy("node-limit", "minNodes: 1.5"):                     "arguments.minNodes: 1.5 must be a whole number from 0 to 5000",
		policy("node-limit", "minNodes: 3, maxNodes: 2"):          "arguments.minNodes: it must be at most arguments.maxNodes",
		one("cpuUtilizationMax: -1"):                              "schedulerConfigs[0].cpuUtilizationMax: -1 must be a number from 0 to 1",
	} { // order: each on its own
		if c, err := readConfig(text); c != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: %v, want %q", text, err, want)
		}
	}
}

// FuzzConfig: no text ends in a panic, and what is taken is within its bounds.
func FuzzConfig(f *testing.F) {
	f.Add(conf)
	f.Add(older)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := readConfig(text)
		if (c == nil) != (err != nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if c == nil {
			return
		}
		for _, s := range c.schedulers {
			if s.from < 0 || s.from > s.to || s.to > whole || s.least < 0 || s.least > s.most || s.most > mostNodes {
				t.Errorf("%+v", s)
			}
		}
	})
}
