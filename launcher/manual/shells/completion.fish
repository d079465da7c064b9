# Completion of gpurun for fish. gpurun itself says what fits, from the tables that its help
# is made of; fish adds files.
function __gpurun_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] completion fish -- $words[2..] "$current" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$current"
            case '*'
                echo $line
        end
    end
end
complete -c gpurun -f -a '(__gpurun_complete)'
