# Completion of gpurun for bash. gpurun itself says what fits, from the tables that its help
# is made of; bash adds files.
_gpurun() {
    local cur="" line word rest i paths=0 words=()
    # bash takes --mode=x apart at the equals sign.
    for ((i = 1; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((${#words[@]})) && [[ $word == = || ( ${COMP_WORDS[i-1]} == = && ${words[-1]} == --*= ) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    ((${#words[@]})) && cur=${words[-1]}
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line == :* ]] && paths=1
        case $line in
:files) mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur") ;;
        *)
            rest=${line%%$'\t'*}
            [[ $cur == --*=* && $COMP_WORDBREAKS == *=* ]] && rest=${rest#*=}
            COMPREPLY+=("$rest")
            ;;
        esac
    done < <("$1" completion bash -- "${words[@]}" 2>/dev/null)
    # Without it a folder would get a blank behind it, not a slash.
    ((paths)) && compopt -o filenames 2>/dev/null
    return 0
}
complete -F _gpurun gpurun
