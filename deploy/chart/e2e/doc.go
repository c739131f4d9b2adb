// Package e2e tests the chart with Helm itself: what it renders, and, behind the build tag lab, a real install into a lab.
//
// It is a module of its own, so that neither Helm nor what it needs is a dependency of Muster. Its replace directives hold every
// library at the main module's version.
package e2e
