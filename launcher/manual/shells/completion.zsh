#compdef gpurun
# Completion of gpurun for zsh. gpurun itself says what fits, from the tables that its help
# is made of; zsh adds files.
_gpurun() {
    local line paths="" tab=$'\t'
    local -a typed found
    typed=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
    while IFS= read -r line; do
        case $line in
        :*) paths=${line#:} ;;
        *) found+=("${${line%%$tab*}//:/\\:}:${line#*$tab}") ;;
        esac
    done < <("${(Q)words[1]}" completion zsh -- "${typed[@]}" 2>/dev/null)
    local ret=1
    ((${#found})) && _describe -V gpurun found && ret=0
    case $paths in
    files) _files && ret=0 ;;
    esac
    return ret
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _gpurun "$@"
else
    compdef _gpurun gpurun
fi
