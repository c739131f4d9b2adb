// Package judge says of the alerts of package monitoring what somebody can say who is no Prometheus server and knows some of the metrics, as the role ui does: the same expressions, by Prometheus' own engine, which the
// history of usage has in the program already. A rule that takes what is not known is not evaluated, and never said to be quiet; nor is one in whose data there may be a hole.
//
// It asks nobody: whoever calls it brings the series. Its test is in package monitoring, whose stories it is told: in each exactly the rules fire that fire with Prometheus.
package judge
