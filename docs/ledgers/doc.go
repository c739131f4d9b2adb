// Package ledgers keeps the two lists that say what Muster does with KAI Scheduler's interface: properties.yaml for
// every property of the custom resources, flags.yaml for every command-line flag. They are pages for people; the tests
// beside them see to it that no row is missing, left over or without evidence.
package ledgers
