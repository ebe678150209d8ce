package settings

import "strings"

// PluginFiles returns the plugins of a kind (net, profiler, tuner) that a value of NCCL_NET_PLUGIN and the like names,
// in order: for each the names of its file. "" stands for the default plugin, and "none" for no plugin.
func PluginFiles(kind, value string) (all [][]string) {
	prefix := "libnccl-" + kind
	if value == "" {
		return [][]string{{prefix + ".so"}}
	}
	if strings.EqualFold(value, "none") {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		if name == "" {
			continue
		}
		files := []string{name}
		library := strings.HasPrefix(name, "lib") && strings.HasSuffix(name, ".so")
		if !library && !strings.Contains(name, "/") {
			files = append(files, prefix+"-"+name+".so")
		}
		all = append(all, files)
	}
	return all
}
